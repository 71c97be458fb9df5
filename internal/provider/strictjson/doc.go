// Package strictjson reads JSON from untrusted clients, before any more lenient decoder does.
//
// encoding/json and the providers' SDKs accept JSON that two readers can understand in two ways: duplicate keys, keys
// in other letter case, bytes that are not UTF-8, fields of the wrong type. The input that is approved must be the
// input that runs, so [Check] refuses all of that. [Object] then reads fields by their exact names, with their path in
// every error. Every error is a [toolyard.InputError].
//
// jsontext provides the grammar, the keys and the positions; the limits, the error texts and the mending are ours.
//
// The package is pure, and keeps nothing between calls.
package strictjson
