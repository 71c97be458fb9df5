package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nkeys"
)

// Signature vouches for the log of a batch: the dispatcher that archived it says that this is what was stored.
type Signature struct {
	// By is the dispatcher, and At when it signed.
	By string    `json:"by"`
	At time.Time `json:"at"`
	// Key is its public key, an NKey, and Sig the Ed25519 signature by that key over all of the entry but Sig.
	Key string `json:"key"`
	Sig []byte `json:"sig"`
}

// ErrUnsigned says that nobody has signed a log.
var ErrUnsigned = errors.New("the log is not signed: the dispatcher that archived it has no --signing-key")

// Signer signs the entries of objects.
type Signer struct {
	key        nkeys.KeyPair
	public, by string
}

// NewSigner makes the signer of a dispatcher. The key must have its seed.
func NewSigner(key nkeys.KeyPair, by string) (*Signer, error) {
	public, err := key.PublicKey()
	if err == nil {
		_, err = key.PrivateKey()
	}
	if err != nil {
		return nil, fmt.Errorf("a key that signs the archive: %w", err)
	}
	return &Signer{key, public, by}, nil
}

// sign signs an entry. A nil signer leaves it as it is.
func (s *Signer) sign(e *Entry, at time.Time) error {
	if s == nil {
		return nil
	}
	e.Signed = &Signature{By: s.by, At: at.UTC(), Key: s.public}
	text, err := e.statement()
	if err == nil {
		e.Signed.Sig, err = s.key.Sign(text)
	}
	if err != nil {
		return fmt.Errorf("sign the log of batch %s/%s: %w", e.Agent, e.Batch, err)
	}
	return nil
}

// statement is what is signed. The sum in it covers every message of the log, with its place and time.
func (e *Entry) statement() ([]byte, error) {
	return json.Marshal([]any{"toolyard log 1", e.Agent, e.Batch, e.Bytes, e.Sum, e.Signed.By, e.Signed.At,
		e.Signed.Key})
}

// Verify reports why an entry was not signed by one of these public keys; nil if it was.
func (e *Entry) Verify(keys []string) error {
	if e.Signed == nil {
		return ErrUnsigned
	}
	public, err := nkeys.FromPublicKey(e.Signed.Key)
	if err != nil {
		return fmt.Errorf("the key %q of its signature: %w", e.Signed.Key, err)
	}
	text, err := e.statement()
	if err == nil {
		err = public.Verify(text, e.Signed.Sig)
	}
	if err != nil {
		return fmt.Errorf("its signature does not fit: %w", err)
	}
	if !slices.Contains(keys, e.Signed.Key) {
		return fmt.Errorf("it is signed with the key %s, which is not one that you trust", e.Signed.Key)
	}
	return nil
}
