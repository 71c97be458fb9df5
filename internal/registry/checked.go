package registry

import (
	"cmp"
	"reflect"

	"github.com/toolyard/toolyard"
)

// maxChecked is how many entries a [Checked] remembers.
const maxChecked = 2 * MaxTools

// Checked makes registries, and remembers which entries it has checked, of whatever pool: to compile their schemas
// takes much longer than all else, and most tools stay when one worker joins. The zero Checked remembers none. It is
// not safe for concurrent use.
type Checked struct {
	seen map[entryName]checked
}

// checked is an entry as it was given, and as it is registered, without its pool.
type checked struct{ given, registered Entry }

// Register is [Registry.Register] of an empty registry.
func (c *Checked) Register(entries ...Entry) (Registry, error) {
	return Registry{}.register(c, entries)
}

// complete reports whether an entry was checked before, and completes it as [check] does.
func (c *Checked) complete(e *Entry) bool {
	if c == nil {
		return false
	}
	have, ok := c.seen[entryName{e.Origin, e.Name}]
	given, pool := *e, cmp.Or(e.Pool, toolyard.DefaultPool)
	given.Pool = ""
	if !ok || toolyard.CheckName("pool", string(pool)) != nil || !reflect.DeepEqual(given, have.given) {
		return false
	}
	*e = have.registered
	e.Pool = pool
	return true
}

// note remembers an entry that was checked.
func (c *Checked) note(given, registered Entry) {
	if c == nil {
		return
	}
	given.Pool, registered.Pool = "", ""
	if c.seen == nil || len(c.seen) >= maxChecked {
		c.seen = map[entryName]checked{}
	}
	c.seen[entryName{given.Origin, given.Name}] = checked{given, registered}
}
