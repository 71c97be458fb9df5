package natsbroker

import (
	"encoding/base64"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestDecisionsAreSigned: a decision is signed with the key of the connection, and nothing in it can be changed, nor
// the batch that it is about.
func TestDecisionsAreSigned(t *testing.T) {
	key, err := nkeys.CreateUser()
	must.OK(t, err)
	public, err := key.PublicKey()
	must.OK(t, err)
	k := toolyard.BatchKey{Agent: "a", ID: "b"}
	jwt := "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"`+public+`"}`)) + ".x"
	for what, o := range map[string]nats.Options{
		"an NKey": {Nkey: public, SignatureCB: key.Sign},
		"a JWT":   {UserJWT: func() (string, error) { return jwt, nil }, SignatureCB: key.Sign},
	} {
		b := &Broker{nc: &nats.Conn{Opts: o}}
		d, err := b.signed(k, 7, events.Decided{Call: 1, Decision: events.Approve, By: "ann", InputSHA256: "00"})
		if err != nil || d.Key != public || d.Behind != 7 {
			t.Fatalf("%s: %+v, %v", what, d, err)
		}
		if err := CheckSignature(k, d); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		other, err := nkeys.CreateUser()
		must.OK(t, err)
		theirs, err := other.PublicKey()
		must.OK(t, err)
		for name, change := range map[string]func(*events.Decided){
			"the call":      func(d *events.Decided) { d.Call = 2 },
			"the decision":  func(d *events.Decided) { d.Decision = events.Reject },
			"who":           func(d *events.Decided) { d.By = "eve" },
			"the input":     func(d *events.Decided) { d.InputSHA256 = "01" },
			"its place":     func(d *events.Decided) { d.Behind = 8 },
			"the key":       func(d *events.Decided) { d.Key = theirs },
			"no key":        func(d *events.Decided) { d.Key = "" },
			"no signature":  func(d *events.Decided) { d.Signature = "" },
			"half of it":    func(d *events.Decided) { d.Signature = d.Signature[:8] },
			"what is no 64": func(d *events.Decided) { d.Signature = "%" },
		} {
			changed := d
			if change(&changed); CheckSignature(k, changed) == nil {
				t.Errorf("%s: with another %s it is still signed", what, name)
			}
		}
		if CheckSignature(toolyard.BatchKey{Agent: "a", ID: "c"}, d) == nil {
			t.Errorf("%s: it is signed for another batch", what)
		}
	}
	for what, o := range map[string]nats.Options{
		"without credentials": {},
		"with a file of credentials that is not there": {SignatureCB: key.Sign,
			UserJWT: func() (string, error) { return "", nil }},
	} {
		d, err := (&Broker{nc: &nats.Conn{Opts: o}}).signed(k, 7, events.Decided{By: "ann"})
		if err != nil || d.Key != "" || !errors.Is(CheckSignature(k, d), ErrUnsigned) {
			t.Errorf("%s: %+v, %v", what, d, err)
		}
	}
	broken := &Broker{nc: &nats.Conn{Opts: nats.Options{SignatureCB: key.Sign,
		UserJWT: func() (string, error) { return "e30.e30.x", nil }}}}
	if _, err := broken.signed(k, 7, events.Decided{}); err == nil {
		t.Error("credentials without a key sign")
	}
}
