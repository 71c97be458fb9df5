package schema

// assertedFormats are checked, and the message shows an example: each has one clear meaning, and a value that does
// not fit it is never what a tool's author meant.
var assertedFormats = map[string]string{
	"date":      "2026-01-31",
	"date-time": "2026-01-31T12:00:00Z",
	"time":      "12:00:00Z",
	"uuid":      "123e4567-e89b-12d3-a456-426614174000",
	"ipv4":      "192.0.2.1",
	"ipv6":      "2001:db8::1",
	"regex":     "^a+$",
}

// annotatedFormats are known to the validator and not checked. Authors use them loosely ("uri" for any link, "email" with
// a display name); JSON Schema 2020-12 makes them annotations, and the tool's own check is the judge.
var annotatedFormats = []string{
	"json-pointer", "relative-json-pointer", "duration", "period", "hostname", "email", "uri", "iri", "uri-reference",
	"iri-reference", "uri-template", "semver",
}
