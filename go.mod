module github.com/toolyard/toolyard

go 1.26.0

require github.com/google/jsonschema-go v0.4.3 // indirect
