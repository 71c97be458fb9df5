module github.com/toolyard/toolyard/test/install

go 1.26.0

require golang.org/x/mod v0.41.0
