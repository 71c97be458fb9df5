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
	o := operation(http.MethodPost, signInPath, signInID, "sign-in", tagConsole, "Sign in from a browser",
		"Puts a token into a cookie, encrypted with a key that the answer has and that the browser sends with each "+
			"request.")
	o = answers(o, http.StatusOK, "The token is in a cookie.", schemaOf[SignedIn](api), jsonType)
	register(s, api, withBody[SignIn](api, o, true, "The token, or a code."), s.signIn)

	o = operation(http.MethodDelete, signInPath, signOutID, "sign-out", tagConsole, "Sign out from a browser",
		"Takes the cookie away.")
	register(s, api, answers(o, http.StatusNoContent, "The cookie is gone.", nil), s.signOut)

	look := func(path, id, action, summary, says, content string, schema *huma.Schema) huma.Operation {
		return answers(operation(http.MethodGet, path, id, action, tagConsole, summary, says), http.StatusOK, content,
			schema, jsonType)
	}
	register(s, api, look(loginPath, loginID, "login", "Get where people sign in",
		"Returns where a browser sends a person to sign in at the issuer of tokens.", "Where people sign in.",
		schemaOf[Login](api)), s.login)
	register(s, api, look("/v1/me", callerID, "me", "Get who asks", "Returns what the token of the request may do.",
		"What the token may do.", schemaOf[Me](api)), s.me)
	register(s, api, look("/v1/search", "searchBatches", "search", "Search batches",
		"Finds batches by what stands in their logs, the newest first. A page is a part of the search: others follow "+
			"while next is there.", "A part of what is found.", schemaOf[Found](api)), s.search)
	register(s, api, look("/v1/batches/{id}/timeline", "getTimeline", "timeline", "Get a batch over time",
		"Returns a batch and its calls as they are now, or as they were at an earlier event.",
		"The batch and its calls.", schemaOf[Timeline](api)), s.timeline)
	register(s, api, look("/v1/batches/{id}/calls/{index}", "getCall", "call", "Get a call",
		"Returns one call with its input, attempts and result.", "The call.", schemaOf[CallLook](api)), s.call)
	register(s, api, look("/v1/approvals/{id}", "getApproval", "approval", "Get a call that waits for a person",
		"Returns the call as the person sees it who decides.", "The call.", schemaOf[ApprovalLook](api)), s.approval)
	register(s, api, look("/v1/waiting", "countApprovals", "count-approvals", "Count approvals",
		"Returns how many calls wait for a person, without reading them.", "How many wait.", schemaOf[WaitingCalls](api)),
		s.waiting)
	register(s, api, look("/v1/workspaces", "listWorkspaces", "workspaces", "List workspaces",
		"Returns who holds and who waits for each workspace that is in use.", "The workspaces that are in use.",
		schemaOf[Workspaces](api)), s.workspaces)
}
