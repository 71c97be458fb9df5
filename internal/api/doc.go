// Package api is HTTP in front of the broker: what a Go agent does with package client, any program does with requests.
//
//	request -> local check -> token -> operation -> client, follow -> answer, or a problem document
//
// The contract is docs/http.md, and /openapi.json is made from the types here. Nothing is kept between two requests but
// the counts of those that are under way and copies of what is stored: any number of servers may stand in front of one
// system, and a client may ask another one each time.
//
// Requests act through package client. What many streams follow is read once, through one [follow.Reader], in which
// each agent has turns at reading; each token's agent has a rate for its streams (pace.go).
//
// Who asks is decided in one place, [caller]: behind a token file each token stands for one agent, who finds nothing of
// any other; without one the listener is this machine's own, and a request says whose things it means.
//
// Errors end as a [Problem] (RFC 9457) in one place, problem.go; handlers return what the client and the reader say.
package api
