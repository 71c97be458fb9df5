// Package strictjson reads the JSON that strangers hand in, before any decoder that is more forgiving sees it.
//
// encoding/json and the providers' SDKs accept what two readers can understand in two ways: duplicate keys, keys in
// other letter case, bytes that are not UTF-8, fields of the wrong type. What is approved must be what runs, so all
// of that is refused here ([Check]), and fields are then read by their exact names with their path in every error
// ([Object]). Every error is a [toolyard.InputError].
//
// The grammar, the keys and the places are jsontext's; the limits, the words of the errors and the mending are ours.
//
// The package is pure, and keeps nothing between calls.
package strictjson
