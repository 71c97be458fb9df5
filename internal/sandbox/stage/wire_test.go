package stage

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// filled puts something into every field there is, so that one that is not coded is missed.
func filled(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			filled(r, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(r, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(3), 3))
		for i := range v.Len() {
			filled(r, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 3 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			filled(r, key)
			filled(r, value)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(strings.Repeat("ä\x00b", 1+r.IntN(100)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(r.Int64() - r.Int64())
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(1 + r.Uint64()&0xfe)
	default:
		panic(v.Kind())
	}
}

func TestEveryFieldArrives(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		for _, m := range []Message{&Root{}, &Spec{}, &Report{}, &Entry{}} {
			filled(r, reflect.ValueOf(m).Elem())
			got := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message)
			var other sync.WaitGroup // sending changes nothing: the race detector sees to it
			other.Go(func() { _ = Write(io.Discard, m) })
			var wire bytes.Buffer
			err := Write(&wire, m)
			other.Wait()
			if err := errors.Join(err, Read(&wire, got)); err != nil || !reflect.DeepEqual(got, m) {
				t.Fatalf("seed %d, %T: %v\n got %+v\nwant %+v", seed, m, err, got, m)
			}
			if err := Read(&wire, got); !errors.Is(err, io.EOF) {
				t.Errorf("behind a frame: %v", err)
			}
		}
	}
	var zero Report
	var wire bytes.Buffer
	if err := errors.Join(Write(&wire, &Report{}), Read(&wire, &zero)); err != nil || zero != (Report{}) {
		t.Errorf("%v %+v", err, zero)
	}
	if err := Write(io.Discard, &Spec{Files: []File{{Content: make([]byte, maxFrame)}}}); err == nil {
		t.Error("a frame that is too long was sent")
	}
}

// FuzzRead: whatever comes over the socket is an error or a message that goes and comes again.
func FuzzRead(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, m := range []Message{&Root{}, &Spec{}, &Report{}, &Entry{}} {
		filled(r, reflect.ValueOf(m).Elem())
		frame, err := Encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
		f.Add(frame[:len(frame)/2])
	}
	f.Add([]byte{0, 0, 0, 3, 0xff, 0xff, 0x03})
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, m := range []Message{&Root{}, &Spec{}, &Report{}, &Entry{}} {
			if Read(bytes.NewReader(frame), m) != nil {
				continue
			}
			again, err := Encode(m)
			got := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message)
			if err == nil {
				err = Read(bytes.NewReader(again), got)
			}
			if err != nil || !reflect.DeepEqual(got, m) {
				t.Fatalf("%T: %v\n got %+v\nwant %+v", m, err, got, m)
			}
		}
	})
}
