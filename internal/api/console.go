package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// Open has requests for a pattern of [http.ServeMux], whose path has no wildcard but a trailing "{$}", answered without
// a token: what it answers must tell nothing about batches. Open before the first request.
func (s *Server) Open(method, path string, answer http.Handler) {
	s.public[path] = true
	if path == "/" {
		path = "/{$}"
	}
	s.mux.Handle(method+" "+path, answer)
}

// needsToken reports whether a request for a path needs a token.
func (s *Server) needsToken(path string) bool { return !open[path] && !s.public[path] }

// consoleOperations are what the web console asks for beside what agents do.
func (s *Server) consoleOperations(api huma.API) {
	op := func(method, path, id, summary string) huma.Operation {
		return huma.Operation{Method: method, Path: path, OperationID: id, Summary: summary}
	}
	const jsonType = "application/json"
	o := answers[SignedIn](api, op(http.MethodPost, signInPath, "sign-in", "Sign in from a browser"), http.StatusOK,
		"The token is in a cookie, encrypted with the key.", jsonType)
	register(s, api, withBody[SignIn](api, o, true), s.signIn)
	register(s, api, answers[string](api, op(http.MethodDelete, signInPath, "sign-out", "Sign out from a browser"),
		http.StatusNoContent, "The cookie is gone."), s.signOut)
	register(s, api, answers[Me](api, op(http.MethodGet, "/v1/me", "me", "Who asks"), http.StatusOK,
		"What the token may do.", jsonType), s.me)
	register(s, api, answers[Found](api, op(http.MethodGet, "/v1/search", "search",
		"Search batches by what stands in their logs"), http.StatusOK, "A part of what is found.", jsonType), s.search)
	register(s, api, answers[Timeline](api, op(http.MethodGet, "/v1/batches/{id}/timeline", "timeline",
		"A batch over time, now or at an earlier event"), http.StatusOK, "The batch and its calls.", jsonType),
		s.timeline)
	register(s, api, answers[CallLook](api, op(http.MethodGet, "/v1/batches/{id}/calls/{index}", "call",
		"One call: its input, attempts and result"), http.StatusOK, "The call.", jsonType), s.call)
	register(s, api, answers[ApprovalLook](api, op(http.MethodGet, "/v1/approvals/{id}", "approval",
		"A call that waits for a person, as the person sees it"), http.StatusOK, "The call.", jsonType), s.approval)
	register(s, api, answers[Workspaces](api, op(http.MethodGet, "/v1/workspaces", "workspaces",
		"Who holds and waits for each workspace"), http.StatusOK, "The workspaces that are in use.", jsonType),
		s.workspaces)
}
