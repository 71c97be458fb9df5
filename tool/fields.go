package tool

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// jsonName is the name that a field's tag gives it, empty if it gives none that encoding/json takes. options are the
// rest of the tag. ok is false for a field that is left out.
func jsonName(f reflect.StructField) (name, options string, ok bool) {
	tag := f.Tag.Get("json")
	if tag == "-" {
		return "", "", false
	}
	name, options, _ = strings.Cut(tag, ",")
	const others = "!#$%&()*+-./:;<=>?@[]^_{|}~ "
	odd := func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(others, c)
	}
	if strings.ContainsFunc(name, odd) {
		name = ""
	}
	return name, options, true
}

// plain reports whether each exported field of a struct is one of its JSON, under the name that its tag says.
func plain(t reflect.Type) bool {
	names := map[string]bool{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, ok := jsonName(f)
		switch said, _, _ := strings.Cut(f.Tag.Get("json"), ","); {
		case f.Anonymous, ok && said != name:
			return false
		case !ok || !f.IsExported():
			continue
		case name == "":
			name = f.Name
		}
		if names[name] {
			return false
		}
		names[name] = true
	}
	return true
}

// jsonField is a field of a struct, or of one that it embeds.
type jsonField struct {
	reflect.StructField
	of            reflect.Type
	name, options string
	// tagged says that the tag gives the name. depth is how many structs are around that embed each other.
	tagged bool
	depth  int
	at     []int
}

// jsonFields are the fields that encoding/json reads into a struct. The fields of an embedded struct without a name
// are the struct's own. Of several with one name the outermost counts, then the one whose tag gives the name, and none
// if these are several.
func jsonFields(t reflect.Type) []jsonField {
	type embedded struct {
		t  reflect.Type
		at []int
	}
	byName, seen := map[string][]jsonField{}, map[reflect.Type]bool{}
	for depth, level := 0, []embedded{{t, nil}}; len(level) > 0; depth++ {
		var next []embedded
		for _, e := range level {
			for i := range e.t.NumField() {
				f := jsonField{StructField: e.t.Field(i), of: e.t, depth: depth,
					at: append(slices.Clone(e.at), i)}
				inner := f.Type
				if inner.Kind() == reflect.Pointer {
					inner = inner.Elem()
				}
				isStruct := f.Anonymous && inner.Kind() == reflect.Struct
				ok := false
				if f.name, f.options, ok = jsonName(f.StructField); !ok || !f.IsExported() && !isStruct {
					continue
				}
				if f.name == "" && isStruct {
					next = append(next, embedded{inner, f.at})
					continue
				}
				if f.tagged = f.name != ""; !f.tagged {
					f.name = f.Name
				}
				byName[f.name] = append(byName[f.name], f)
			}
		}
		for _, e := range level {
			seen[e.t] = true
		}
		level = slices.DeleteFunc(next, func(e embedded) bool { return seen[e.t] })
	}
	var out []jsonField
	for _, all := range byName {
		slices.SortStableFunc(all, func(a, b jsonField) int {
			if a.depth == b.depth && a.tagged != b.tagged {
				if a.tagged {
					return -1
				}
				return 1
			}
			return a.depth - b.depth
		})
		if len(all) == 1 || all[0].depth != all[1].depth || all[0].tagged != all[1].tagged {
			out = append(out, all[0])
		}
	}
	slices.SortFunc(out, func(a, b jsonField) int { return slices.Compare(a.at, b.at) })
	return out
}

// closedPointer is a pointer to an unexported struct that a struct embeds, and through which fields would be read: nil
// if there is none. encoding/json cannot set it.
func closedPointer(t reflect.Type) reflect.Type {
	for _, f := range jsonFields(t) {
		in := t
		for _, i := range f.at[:len(f.at)-1] {
			around := in.Field(i)
			if in = around.Type; in.Kind() != reflect.Pointer {
				continue
			}
			if !around.IsExported() {
				return in
			}
			in = in.Elem()
		}
	}
	return nil
}

// readByAnother says what is wrong with an input type that does not read its own fields: one that is read from text,
// which no input is, or by the method of a type that it embeds. That method fills in its own type only, and is called
// for a pointer that is nil too.
func readByAnother(t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	pointer, reads := reflect.PointerTo(t), reflect.TypeFor[json.Unmarshaler]()
	if t.Kind() != reflect.Struct {
		return nil
	}
	if !pointer.Implements(reads) {
		if pointer.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			return fmt.Errorf("%s is read from a text (UnmarshalText), and an input is an object; read it by "+
				"UnmarshalJSON, or make it a field", t)
		}
		return nil
	}
	if !promoted(t) {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		isPointer := f.Type.Kind() == reflect.Pointer
		if !f.Anonymous || !f.Type.Implements(reads) && !reflect.PointerTo(f.Type).Implements(reads) {
			continue
		}
		beside := func(other jsonField) bool { return other.at[0] != i }
		if isPointer || slices.ContainsFunc(jsonFields(t), beside) {
			return fmt.Errorf("%s embeds %s, whose UnmarshalJSON reads all of the input in its place; give the field "+
				"a name, or write UnmarshalJSON of %s", t, f.Type, t)
		}
	}
	return nil
}

// promoted reports whether a type that has the method UnmarshalJSON has it from a type that it embeds. A type without a
// name can have none of its own. Of others the compiler says so: it writes the methods that are promoted.
func promoted(t reflect.Type) bool {
	if t.Name() == "" {
		return true
	}
	m, ok := t.MethodByName("UnmarshalJSON") // a constant name: of another one the linker would keep all methods
	if !ok {
		m, ok = reflect.PointerTo(t).MethodByName("UnmarshalJSON")
	}
	if !ok {
		return false
	}
	at := m.Func.Pointer()
	code := runtime.FuncForPC(at)
	if code == nil {
		return false
	}
	file, _ := code.FileLine(at)
	return file == "<autogenerated>"
}

// flat is a struct type whose fields are those that encoding/json reads into another one.
func flat(t reflect.Type) reflect.Type {
	var fields []reflect.StructField
	for i, f := range jsonFields(t) {
		tag := "json:" + strconv.Quote(f.name+","+f.options)
		if says, ok := f.Tag.Lookup("jsonschema"); ok {
			tag += " jsonschema:" + strconv.Quote(says)
		}
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: f.Type,
			Tag: reflect.StructTag(tag)})
	}
	return reflect.StructOf(fields)
}
