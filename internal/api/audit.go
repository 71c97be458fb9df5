package api

import (
	"net/http"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/audit"
)

// tokenDigits is how much of a token's sum an entry of the audit log has.
const tokenDigits = 16

// audited is a writer that puts a request into the audit log when its answer begins: a stream may take an hour.
type audited struct {
	http.ResponseWriter
	x    *exchange
	said bool
}

func (a *audited) WriteHeader(status int) {
	if status >= http.StatusOK { // others come before it
		a.record(status)
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *audited) Write(b []byte) (int, error) {
	a.record(http.StatusOK)
	return a.ResponseWriter.Write(b)
}

// Flush is for [http.Flusher].
func (a *audited) Flush() {
	if f, ok := a.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap is for [http.ResponseController].
func (a *audited) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// record puts down what changes something, and who was refused. Requests of /mcp are put down call by call.
func (a *audited) record(status int) {
	if a.said {
		return
	}
	a.said = true
	refused := status == http.StatusUnauthorized || status == http.StatusForbidden
	if x := a.x; refused || x.r.Method == http.MethodPost && x.r.URL.Path != MCPPath {
		x.did.Status = status
		if x.did.Action == "" {
			x.did.Action = "request"
		}
		x.put(x.did)
	}
}

// put completes an entry with who asks.
func (x *exchange) put(e audit.Entry) {
	e.By, e.Proof, e.From = x.who.name, string(x.who.proof), x.r.RemoteAddr
	if e.Proof == "" {
		e.Proof = string(ProvedByNothing)
	}
	e.Token = x.who.token[:min(tokenDigits, len(x.who.token))]
	e.Request = x.r.Method + " " + x.r.URL.Path
	x.s.cfg.Audit.Put(e)
}

// of says in the audit log which batch a request is about.
func (x *exchange) of(k toolyard.BatchKey) { x.did.Agent, x.did.Batch = string(k.Agent), string(k.ID) }

// handsIn says in the audit log what is handed in.
func handsIn(e *audit.Entry, calls []toolyard.Call) {
	for _, c := range calls {
		e.HandIn(c.Tool)
	}
}
