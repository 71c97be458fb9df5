module github.com/toolyard/toolyard/examples/cedar

go 1.26.0

require github.com/cedar-policy/cedar-go v1.9.0

require (
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	golang.org/x/exp v0.0.0-20220921023135-46d9e7742f1e // indirect
)
