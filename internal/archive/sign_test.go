package archive

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// signer is one with a new key, and its public key.
func signer(t *testing.T, by string) (*Signer, string) {
	t.Helper()
	key, err := nkeys.CreateUser()
	must.OK(t, err)
	s, err := NewSigner(key, by)
	must.OK(t, err)
	return s, s.public
}

// TestSignatures: each entry is signed by itself, and whatever is changed in one shows.
func TestSignatures(t *testing.T) {
	s, public := signer(t, "d1")
	at := time.Date(2026, 11, 23, 1, 2, 3, 4, time.FixedZone("", 3600))
	objects, _, err := Pack([]Log{logOf("b", 20), logOf("c", 30)}, s, at)
	if err != nil || len(objects) != 1 {
		t.Fatalf("%d objects, %v", len(objects), err)
	}
	list, _, err := List(objects[0].Bytes)
	if err != nil || len(list) != 2 {
		t.Fatalf("%d entries, %v", len(list), err)
	}
	for i := range list {
		if err := list[i].Verify([]string{"other", public}); err != nil {
			t.Errorf("entry %d: %v", i, err)
		}
		if got := list[i].Signed; got.By != "d1" || !got.At.Equal(at) {
			t.Errorf("entry %d is signed by %s at %s", i, got.By, got.At)
		}
	}
	_, other := signer(t, "d1")
	for what, change := range map[string]func(e *Entry){
		"agent":                 func(e *Entry) { e.Agent = "b" },
		"batch":                 func(e *Entry) { e.Batch = "c" },
		"bytes":                 func(e *Entry) { e.Bytes++ },
		"sum":                   func(e *Entry) { e.Sum = list[1].Sum },
		"by":                    func(e *Entry) { e.Signed.By = "d2" },
		"at":                    func(e *Entry) { e.Signed.At = at.Add(time.Nanosecond) },
		"key":                   func(e *Entry) { e.Signed.Key = other },
		"no key":                func(e *Entry) { e.Signed.Key = "" },
		"sig":                   func(e *Entry) { e.Signed.Sig[3] ^= 1 },
		"no sig":                func(e *Entry) { e.Signed.Sig = nil },
		"that of another batch": func(e *Entry) { e.Signed = list[1].Signed },
	} {
		e := list[0]
		signed := *list[0].Signed
		signed.Sig = append([]byte(nil), signed.Sig...)
		e.Signed = &signed
		if change(&e); e.Verify([]string{public, other}) == nil {
			t.Errorf("with another %s it is still signed", what)
		}
	}
	if err := list[0].Verify([]string{other}); err == nil || !strings.Contains(err.Error(), public) {
		t.Errorf("with a key that nobody trusts: %v", err)
	}
	if err := list[0].Verify(nil); err == nil {
		t.Error("nobody is trusted, and it is signed")
	}
}

// TestUnsigned: who has no key signs nothing, and what is not signed is not proven.
func TestUnsigned(t *testing.T) {
	objects, _, err := Pack([]Log{logOf("b", 20)}, nil, time.Now())
	must.OK(t, err)
	if e := objects[0].List[0]; e.Signed != nil || !errors.Is(e.Verify(nil), ErrUnsigned) {
		t.Errorf("it is signed %+v: %v", e.Signed, e.Verify(nil))
	}
	key, err := nkeys.CreateUser()
	must.OK(t, err)
	public, err := key.PublicKey()
	must.OK(t, err)
	if key, err = nkeys.FromPublicKey(public); err != nil {
		t.Fatal(err)
	}
	if _, err := NewSigner(key, "d1"); err == nil {
		t.Error("a public key signs")
	}
}
