package endpoint

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// TestARedirectMakesNoOtherRequest: a request that is redirected is sent again as it was, leads to its answer (303), or
// is an error that says whether it may have taken effect.
func TestARedirectMakesNoOtherRequest(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		for status, want := range map[int]toolyard.Code{http.StatusMovedPermanently: toolyard.ExecutionFailed,
			http.StatusFound: toolyard.OutcomeUnknown, http.StatusSeeOther: "",
			http.StatusTemporaryRedirect: "", http.StatusPermanentRedirect: ""} {
			at := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/tickets" {
					http.Redirect(w, r, "/login", status)
					return
				}
				if r.Method != method && status != http.StatusSeeOther {
					t.Errorf("%s, %d: the service was asked with %s", method, status, r.Method)
				}
				_, _ = io.WriteString(w, "ok")
			})
			out, err := declared(t, "", `{"method":"`+method+`","url":"`+at+`/tickets"}`).Run(t.Context(), env(),
				json.RawMessage(`{"a":"b"}`))
			if want == "" && (err != nil || out.Text != "ok") ||
				want != "" && (err == nil || tool.AsError(err).Code != want) {
				t.Errorf("%s, %d: %q, %v", method, status, out.Text, err)
			}
			if want == toolyard.ExecutionFailed && !strings.Contains(fmt.Sprint(err), "manifest") {
				t.Errorf("%s, %d: the operator is not told what to do: %v", method, status, err)
			}
		}
	}
}

// TestARequestThatMayBeRepeatedIsNeverUnknown: also where it is redirected in a way that is not followed.
func TestARequestThatMayBeRepeatedIsNeverUnknown(t *testing.T) {
	at := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) })
	_, err := declared(t, `"idempotent":true,`, `{"method":"PUT","url":"`+at+`/tickets"}`).Run(t.Context(), env(),
		json.RawMessage(`{"a":"b"}`))
	if err == nil || tool.AsError(err).Code != toolyard.ExecutionFailed || !strings.Contains(err.Error(), "manifest") {
		t.Errorf("got %v", err)
	}
}

// TestARedirectElsewhereSaysWhetherItMayHaveTakenEffect, as the same redirect within the service does.
func TestARedirectElsewhereSaysWhetherItMayHaveTakenEffect(t *testing.T) {
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("somebody else was asked") })
	for _, c := range []struct {
		method string
		status int
		want   toolyard.Code
	}{
		{"POST", http.StatusFound, toolyard.OutcomeUnknown}, {"POST", http.StatusSeeOther, toolyard.OutcomeUnknown},
		{"POST", http.StatusMovedPermanently, toolyard.ExecutionFailed},
		{"POST", http.StatusTemporaryRedirect, toolyard.ExecutionFailed},
		{"GET", http.StatusFound, toolyard.ExecutionFailed},
	} {
		at := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, c.status) })
		_, err := declared(t, "", `{"method":"`+c.method+`","url":"`+at+`"}`).Run(t.Context(), env(),
			json.RawMessage(`{"a":"b"}`))
		if err == nil || tool.AsError(err).Code != c.want {
			t.Errorf("%s, %d: %v, want %s", c.method, c.status, err, c.want)
		}
	}
}

// TestTheAnswerBehindASeeOther: the request was taken when the service says where its answer is. That this cannot be
// had is no reason to send the request again.
func TestTheAnswerBehindASeeOther(t *testing.T) {
	for status, want := range map[int]toolyard.Code{http.StatusOK: "", http.StatusMovedPermanently: "",
		http.StatusFound: "", http.StatusNotFound: toolyard.OutcomeUnknown,
		http.StatusForbidden: toolyard.OutcomeUnknown, http.StatusServiceUnavailable: toolyard.OutcomeUnknown} {
		at := serve(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/tickets":
				http.Redirect(w, r, "/tickets/7", http.StatusSeeOther)
			case r.URL.Path == "/tickets/7" && status/100 == 3:
				http.Redirect(w, r, "/tickets/7/", status)
			case r.URL.Path == "/tickets/7":
				w.WriteHeader(status)
				fallthrough
			default:
				_, _ = io.WriteString(w, "ok")
			}
		})
		out, err := declared(t, "", `{"url":"`+at+`/tickets"}`).Run(t.Context(), env(), json.RawMessage(`{"a":"b"}`))
		if want == "" && (err != nil || out.Text != "ok") ||
			want != "" && (err == nil || tool.AsError(err).Code != want || tool.AsError(err).Retryable) {
			t.Errorf("%d: %q, %v, want %q", status, out.Text, err, want)
		}
	}
}
