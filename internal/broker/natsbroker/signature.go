package natsbroker

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// ErrUnsigned says that the process which stored a decision had no key.
var ErrUnsigned = errors.New("it is not signed")

// signed is a decision behind the end of a chain, with the signature of the connection's credentials. Without
// credentials it has none.
func (b *Broker) signed(k toolyard.BatchKey, behind uint64, d events.Decided) (events.Decided, error) {
	sign := b.nc.Opts.SignatureCB
	if sign == nil {
		return d, nil
	}
	key, err := b.publicKey()
	if err != nil {
		return d, fmt.Errorf("sign a decision: %w", err)
	}
	if key == "" {
		return d, nil
	}
	d.Behind, d.Key = behind, key
	statement, err := d.Statement(k.Agent, k.ID)
	if err != nil {
		return d, err
	}
	signature, err := sign(statement)
	if err != nil {
		return d, fmt.Errorf("sign a decision: %w", err)
	}
	d.Signature = base64.StdEncoding.EncodeToString(signature)
	return d, nil
}

// publicKey is that of the connection's credentials: an NKey, or the subject of a JWT. Empty: the connection may use
// credentials, and has none.
func (b *Broker) publicKey() (string, error) {
	o := &b.nc.Opts
	if o.Nkey != "" || o.UserJWT == nil {
		return o.Nkey, nil
	}
	token, err := o.UserJWT()
	if err != nil || token == "" {
		return "", err
	}
	var claims struct {
		Subject string `json:"sub"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", errors.New("the credentials have no JWT")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err == nil && !nkeys.IsValidPublicUserKey(claims.Subject) {
		err = errors.New("its subject is no key of a user")
	}
	if err != nil {
		return "", fmt.Errorf("read the JWT of the credentials: %w", err)
	}
	return claims.Subject, nil
}

// CheckSignature says what is wrong with the signature of a decision about a call of a batch: [ErrUnsigned], or why it
// is not the one of its key. Who may use that key is for the caller to know.
func CheckSignature(k toolyard.BatchKey, d events.Decided) error {
	if d.Key == "" && d.Signature == "" {
		return ErrUnsigned
	}
	statement, err := d.Statement(k.Agent, k.ID)
	if err != nil {
		return err
	}
	signature, err := base64.StdEncoding.DecodeString(d.Signature)
	if err != nil {
		return fmt.Errorf("its signature is no base64: %w", err)
	}
	public, err := nkeys.FromPublicKey(d.Key)
	if err != nil {
		return fmt.Errorf("its key %q is none: %w", d.Key, err)
	}
	if public.Verify(statement, signature) != nil {
		return errors.New("its signature is not that of its key: it was changed, or is of another decision")
	}
	return nil
}
