package registry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/toolyard/toolyard"
)

// Fit returns the entries for which a registry has room, and how many of each pool it has none for. Names are unique
// within an origin. Each pool has the same share of the room, and what one does not need is for the others: so whatever
// a pool offers, it takes no tool away from a pool that offers less than its share. Of one pool the first ones stay, by
// origin and name.
func Fit(entries []Entry) (kept []Entry, left map[toolyard.Pool]int, err error) {
	pools, bytes := map[toolyard.Pool][]Entry{}, map[entryName]int{}
	for _, e := range entries {
		raw, err := json.Marshal(e)
		if err != nil {
			return nil, nil, fmt.Errorf("encode tool %q: %w", e.Name, err)
		}
		e.Pool = cmp.Or(e.Pool, toolyard.DefaultPool)
		pools[e.Pool] = append(pools[e.Pool], e)
		bytes[entryName{e.Origin, e.Name}] = len(raw)
	}
	left = map[toolyard.Pool]int{}
	names := slices.SortedFunc(maps.Keys(pools), func(a, b toolyard.Pool) int {
		return cmp.Or(len(pools[a])-len(pools[b]), cmp.Compare(a, b))
	})
	tools, room := MaxTools, MaxBytes
	for i, name := range names { // what the small ones leave is shared by the others
		mayHave, mayUse := tools/(len(names)-i), room/(len(names)-i)
		slices.SortFunc(pools[name], compare)
		for _, e := range pools[name] {
			size := bytes[entryName{e.Origin, e.Name}]
			if mayHave == 0 || size > mayUse {
				left[name]++
				continue
			}
			mayHave, mayUse, tools, room = mayHave-1, mayUse-size, tools-1, room-size
			kept = append(kept, e)
		}
	}
	return kept, left, nil
}

// entryName is a tool's name, which is unique within an origin.
type entryName struct {
	origin Origin
	name   string
}
