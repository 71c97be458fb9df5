package dispatchercmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nkeys"
	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/durable"
	"github.com/toolyard/toolyard/internal/events"
)

// verified is what verify --json prints of a batch.
type verified struct {
	Agent    toolyard.Agent   `json:"agent"`
	Batch    toolyard.BatchID `json:"batch"`
	Verified bool             `json:"verified"`
	// Problem says why it is not.
	Problem  string     `json:"problem,omitempty"`
	Messages int        `json:"messages,omitempty"`
	First    *time.Time `json:"first,omitempty"`
	Last     *time.Time `json:"last,omitempty"`
	Sum      string     `json:"sha256,omitempty"`
	By       string     `json:"signed_by,omitempty"`
	At       *time.Time `json:"signed_at,omitempty"`
	Key      string     `json:"key,omitempty"`
	// Decisions are what people decided about its calls.
	Decisions []decisionProof `json:"decisions,omitempty"`
	// Strange are messages of the batch in the streams that are no part of the log.
	Strange []string `json:"strange,omitempty"`
}

func (s *std) verifyCommand() *cobra.Command {
	var sys natsFlags
	var agent string
	var keys, approvers []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify [flags] --key KEY BATCH...",
		Short: "Prove that the log of an archived batch is what its dispatcher archived",
		Long: `verify reads the archived log of each BATCH and checks the signature of the dispatcher that archived it (serve
--archive-after with --signing-key): that nothing in the log was changed, left out or added since. Every message counts,
with its place and time. It also looks for messages of the batch that were stored beside the log.

--key names the public keys that you trust, as signing-key prints them. A log that is signed with another key, or not
signed, is not proven. A person's decision about a call is signed with the NATS credentials of the process that stored
it: of approve over NATS those of the person, and of the dispatcher over HTTP. A signature that is not that of its key is
not proven. With --approver each decision must be signed with one of these keys. A batch that is not archived yet has no signature. What happened before the batch was archived is
not proven by it.

Exit status: 0 all are proven, 1 one is not, or the system failed, 2 a flag is wrong, or there is no such batch.`,
		Example: `  dispatcher verify --key UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4 nightly-7
  dispatcher verify --key "$(dispatcher signing-key archive.nk)" --json nightly-7 nightly-8`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("dispatcher verify takes the ids of batches; see dispatcher verify --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(keys) == 0 {
				return cli.Usagef("--key: give the public key of a dispatcher that may sign; dispatcher signing-key FILE " +
					"prints it")
			}
			for _, k := range keys {
				if !nkeys.IsValidPublicKey(k) {
					return cli.Usagef("--key %q: is no public NKey; dispatcher signing-key FILE prints one", k)
				}
			}
			if err := cli.NotEmpty(cmd.Flags(), "approver"); err != nil {
				return err
			}
			for _, k := range approvers {
				if !nkeys.IsValidPublicUserKey(k) {
					return cli.Usagef("--approver %q: is no public NKey of a user; verify --json prints those that have "+
						"signed", k)
				}
			}
			if err := toolyard.CheckName("--agent", agent); err != nil {
				return err
			}
			var batches []toolyard.BatchKey
			for _, name := range args {
				if err := checkBatchName(name); err != nil {
					return err
				}
				batches = append(batches, toolyard.BatchKey{Agent: toolyard.Agent(agent), ID: toolyard.BatchID(name)})
			}
			return s.overBroker(cmd.Context(), &sys, "verify", func(b *natsbroker.Broker) error {
				return s.verify(cmd, b, batches, keys, approvers, asJSON)
			})
		},
	}
	sys.add(cmd.Flags())
	cmd.Flags().StringVar(&agent, "agent", string(toolyard.DefaultAgent), "whose batches they are")
	cmd.Flags().StringSliceVar(&keys, "key", nil, "a public key that you trust; may be given more than once")
	cmd.Flags().StringSliceVar(&approvers, "approver", nil, "a public key that each decision about a call must be signed "+
		"with, or with another one that is given (default: any key)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func (s *std) verify(cmd *cobra.Command, b *natsbroker.Broker, batches []toolyard.BatchKey, keys, approvers []string,
	asJSON bool) error {
	var all []verified
	failed := 0
	for _, k := range batches {
		if asShown(string(k.ID)) {
			var err error
			if k, err = meant(k, cli.OnCommandLine(cmd, "agent"), func(k toolyard.BatchKey) (toolyard.BatchKey, error) {
				_, err := b.Prove(cmd.Context(), k)
				if !errors.Is(err, broker.ErrNoBatch) { // proof says what else it is
					err = nil
				}
				return k, err
			}); err != nil {
				return err
			}
		}
		v, err := proof(cmd, b, k, keys)
		if err == nil && v.Verified {
			err = v.addDecisions(cmd.Context(), b, k, approvers)
		}
		if err != nil {
			return err
		}
		all = append(all, v)
		if !v.Verified {
			failed++
		}
		if asJSON {
			continue
		}
		if _, err := fmt.Fprintln(s.out, cli.Printable(v.String())); err != nil {
			return err
		}
	}
	if asJSON {
		if err := printJSON(s.out, all); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d logs are not proven", failed, len(all))
	}
	return nil
}

// proof checks one batch. What is wrong with its log is no error.
func proof(cmd *cobra.Command, b *natsbroker.Broker, k toolyard.BatchKey, keys []string) (verified, error) {
	v := verified{Agent: k.Agent, Batch: k.ID}
	p, err := b.Prove(cmd.Context(), k)
	lost, damaged := errors.AsType[*broker.LostError](err)
	switch {
	case errors.Is(err, broker.ErrNoBatch):
		return v, cli.Usagef("there is no batch %q of agent %q", k.ID, whose(k.Agent))
	case errors.Is(err, natsbroker.ErrNotArchived):
		v.Problem = err.Error()
		return v, nil
	case damaged:
		v.Problem = lost.Error()
		return v, nil
	case err != nil:
		return v, err
	}
	v.Messages, v.First, v.Last, v.Sum, v.Strange = p.Messages, &p.First, &p.Last, p.Entry.Sum, p.Strange
	if signed := p.Entry.Signed; signed != nil {
		v.By, v.At, v.Key = signed.By, &signed.At, signed.Key
	}
	switch err := p.Entry.Verify(keys); {
	case err != nil:
		v.Problem = err.Error()
	case len(p.Strange) > 0:
		v.Problem = fmt.Sprintf("beside the log there is %s", p.Strange[0])
		if n := len(p.Strange) - 1; n > 0 {
			v.Problem += fmt.Sprintf(", and %d more", n)
		}
	default:
		v.Verified = true
	}
	return v, nil
}

// String is the line that verify prints.
func (v verified) String() string {
	name := toolyard.BatchKey{Agent: v.Agent, ID: v.Batch}
	if !v.Verified {
		return fmt.Sprintf("%s: NOT PROVEN: %s", name, v.Problem)
	}
	line := fmt.Sprintf("%s: proven: %d messages from %s to %s, as %s signed them at %s", name, v.Messages,
		v.First.Format(time.RFC3339), v.Last.Format(time.RFC3339), v.By, v.At.Format(time.RFC3339))
	for _, d := range v.Decisions {
		signed := "not signed"
		if d.Key != "" {
			signed = "signed with " + d.Key
		}
		line += fmt.Sprintf("\n  call %d: %s by %s, %s", d.Call, d.Decision, d.By, signed)
	}
	return line
}

// decisionProof is a person's decision in a log, with the key that has signed it; empty if it is not signed.
type decisionProof struct {
	Call     int             `json:"call"`
	Decision events.Decision `json:"decision"`
	By       string          `json:"by"`
	Key      string          `json:"key,omitempty"`
}

// addDecisions checks the decisions in a log. One that is not signed as it should be makes the log one that is not
// proven.
func (v *verified) addDecisions(ctx context.Context, b *natsbroker.Broker, k toolyard.BatchKey,
	approvers []string) error {
	log, err := b.Log(ctx, k)
	if err != nil {
		return err
	}
	for _, l := range log {
		d, ok := l.Body.(events.Decided)
		if !ok || d.Decision == events.Supersede { // which no person has decided
			continue
		}
		v.Decisions = append(v.Decisions, decisionProof{Call: d.Call, Decision: d.Decision, By: d.By, Key: d.Key})
		err := natsbroker.CheckSignature(k, d)
		switch {
		case errors.Is(err, natsbroker.ErrUnsigned) && len(approvers) == 0:
			continue
		case err == nil && len(approvers) > 0 && !slices.Contains(approvers, d.Key):
			err = fmt.Errorf("it is signed with %s, which is none of --approver", d.Key)
		}
		if err != nil && v.Verified {
			v.Verified = false
			v.Problem = fmt.Sprintf("the decision of %s about call %d: %s", d.By, d.Call, err)
		}
	}
	return nil
}

func (s *std) signingKeyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "signing-key [flags] FILE",
		Short: "Make the key that signs archived logs, and print its public key",
		Long: `signing-key makes a new NKey, writes its seed to FILE, which only its owner may read, and prints the public
key. If FILE is there, its public key is printed and nothing is written. serve --signing-key FILE signs what it archives
with it; verify --key takes the public key. Each dispatcher may have its own.`,
		Example: `  dispatcher signing-key archive.nk
  dispatcher serve --archive-after 10m --signing-key archive.nk`,
		Args: cli.OneArg("one FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			read := func(path string) (nkeys.KeyPair, error) { return readSigningKey("FILE", path) }
			if _, err := os.Stat(args[0]); errors.Is(err, fs.ErrNotExist) {
				read = writeSigningKey
			}
			key, err := read(args[0])
			if err != nil {
				return err
			}
			defer key.Wipe()
			public, err := key.PublicKey()
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if asJSON {
				return printJSON(s.out, struct {
					Key string `json:"key"`
				}{public})
			}
			_, err = fmt.Fprintln(s.out, public)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// maxSeedBytes bounds the file of a key. One of credentials has a seed too.
const maxSeedBytes = 64 << 10

// readSigningKey reads the key in a file that a flag or an argument names.
func readSigningKey(from, path string) (nkeys.KeyPair, error) {
	text, err := cli.ReadFile(from, path, maxSeedBytes)
	if err != nil {
		return nil, err
	}
	key, err := nkeys.ParseDecoratedNKey(text)
	if err != nil {
		return nil, cli.Usagef("%s %s: has no seed of an NKey; dispatcher signing-key FILE makes one in a file that is "+
			"not there yet", from, path)
	}
	return key, nil
}

func writeSigningKey(path string) (nkeys.KeyPair, error) {
	key, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	if err := writeSeed(path, key); err != nil {
		key.Wipe()
		return nil, err
	}
	return key, nil
}

func writeSeed(path string, key nkeys.KeyPair) error {
	seed, err := key.Seed()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return cli.Usagef("FILE %s: %w", path, errors.Unwrap(err))
	}
	_, err = f.Write(append(seed, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil { // half a seed would be taken for a key that is there
		return fmt.Errorf("write the key: %w", errors.Join(err, os.Remove(path)))
	}
	return durable.SyncDir(filepath.Dir(path))
}
