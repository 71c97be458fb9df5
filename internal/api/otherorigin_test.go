package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestNoPageOfAnotherOriginSendsAnEmptyBody: a page of another port of this machine, such as the preview of what a
// model has written, is of the same site for a browser. It may send what has no body, or one of a type of forms,
// without asking the server first.
func TestNoPageOfAnotherOriginSendsAnEmptyBody(t *testing.T) {
	for _, c := range []struct {
		what, origin, kind, body string
		proof                    Proof
		want                     int // the problem's status; 0: none
	}{
		{"a program", "", "", "", ProvedByNothing, 0},
		{"a program that says what it sends", "", "application/json", `{}`, ProvedByNothing, 0},
		{"the server's own page", "http://127.0.0.1:8080", "", "", ProvedByNothing, 0},
		{"the page of another port", "http://127.0.0.1:5173", "", "", ProvedByNothing, http.StatusForbidden},
		{"the page of another name", "http://localhost:8080", "", "", ProvedByNothing, http.StatusForbidden},
		{"another port, blanks", "http://127.0.0.1:5173", "text/plain", "  ", ProvedByNothing, http.StatusForbidden},
		{"another port, a form's type", "http://127.0.0.1:5173", "text/plain", "{}", ProvedByNothing,
			http.StatusUnsupportedMediaType},
		{"another port, which had to ask", "http://127.0.0.1:5173", "application/json", "{}", ProvedByNothing, 0},
		{"another port, which had to ask, empty", "http://127.0.0.1:5173", "application/json", "", ProvedByNothing,
			0},
		{"another port, with a token, which no form sends", "http://127.0.0.1:5173", "", "", ProvedByToken, 0},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8080/v1/sessions/s/interrupt",
			strings.NewReader(c.body))
		for name, value := range map[string]string{"Origin": c.origin, "Content-Type": c.kind} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		x := &exchange{w: w, r: r, who: caller{any: true, proof: c.proof}, conn: http.NewResponseController(w)}
		_, err := x.body(MaxSmallBodyBytes, true)
		status := 0
		if p, ok := errors.AsType[*Problem](err); ok {
			status = p.Status
		} else if err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if status != c.want {
			t.Errorf("%s: status %d; want %d", c.what, status, c.want)
		}
	}
}
