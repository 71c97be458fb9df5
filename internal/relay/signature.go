// Package relay asks an HTTP service about the calls that wait for a person, and takes the service's signed answers.
//
// A question is a POST with all that a person is shown. An answer is a POST to [Relay.ServeHTTP], for whenever the
// person has decided. Both are signed as Standard Webhooks 1.0 says, with one secret: HMAC-SHA256 over id, time and
// body.
//
// Authority: the calls that wait, as the log has them. A relay keeps nothing that matters: one that starts anew asks
// again about each call, under the same id.
//
// Failure: a question that is not taken is asked again, later each time, up to [MaxPause]. An answer that is not signed
// or too old changes nothing. The first decision about a call counts; a later one is told so.
package relay

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a signed request.
const (
	headerID        = "Webhook-Id"
	headerTime      = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// Tolerance is how far the time of a signed request may be from ours.
const Tolerance = 5 * time.Minute

// Bounds of a secret, in bytes.
const (
	MinSecretBytes = 24
	MaxSecretBytes = 64
)

// maxSignatures is how many signatures one request may have: while a secret is replaced there are two.
const maxSignatures = 8

// secretPrefix begins a secret as people write it.
const secretPrefix = "whsec_"

// Secret is what both sides know.
type Secret []byte

// ParseSecret reads a secret: whsec_ and base64.
func ParseSecret(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < MinSecretBytes || len(key) > MaxSecretBytes {
		return nil, fmt.Errorf("a secret is %s and %d to %d random bytes in base64: echo %s$(openssl rand -base64 32)",
			secretPrefix, MinSecretBytes, MaxSecretBytes, secretPrefix)
	}
	return key, nil
}

// sum is the signature of a request.
func (s Secret) sum(id, at string, body []byte) []byte {
	mac := hmac.New(sha256.New, s)
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// sign sets the headers of a request.
func (s Secret) sign(h http.Header, id string, now time.Time, body []byte) {
	at := strconv.FormatInt(now.Unix(), 10)
	h.Set(headerID, id)
	h.Set(headerTime, at)
	h.Set(headerSignature, "v1,"+base64.StdEncoding.EncodeToString(s.sum(id, at, body)))
}

// errUnsigned is what a sender is told who does not know the secret, whatever is wrong.
var errUnsigned = errors.New("the request is not signed with the secret, or its time is not now")

// verify checks the headers of a request.
func (s Secret) verify(h http.Header, now time.Time, body []byte) error {
	id, at := h.Get(headerID), h.Get(headerTime)
	seconds, err := strconv.ParseInt(at, 10, 64)
	if id == "" || err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > Tolerance {
		return errUnsigned
	}
	want := s.sum(id, at, body)
	for i, one := range strings.Fields(h.Get(headerSignature)) {
		if i == maxSignatures {
			break
		}
		version, encoded, _ := strings.Cut(one, ",")
		got, err := base64.StdEncoding.DecodeString(encoded)
		if version == "v1" && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return errUnsigned
}
