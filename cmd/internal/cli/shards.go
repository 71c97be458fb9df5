package cli

import (
	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/shard"
)

// Shards is the flag that says which shards of a system a process serves.
type Shards struct{ list string }

// Add adds the flag. what is what the process takes of a shard.
func (s *Shards) Add(f *pflag.FlagSet, what string) {
	f.StringVar(&s.list, "serve-shards", "", "take "+what+" of some shards only, as a `LIST` such as 0,2-3; a shard that "+
		"is added later is then served by others (default: all)")
}

// Check returns an error if the flag names no shards.
func (s *Shards) Check() error {
	if _, err := shard.ParseSet(s.list); err != nil {
		return Usagef("--serve-shards: %w", err)
	}
	return nil
}

// Serve returns a broker that takes what the flag says.
func (s *Shards) Serve(b *natsbroker.Broker) (*natsbroker.Broker, error) {
	only, err := shard.ParseSet(s.list)
	if err == nil {
		b, err = b.Serve(only)
	}
	if err != nil {
		return nil, Usagef("--serve-shards: %w", err)
	}
	return b, nil
}
