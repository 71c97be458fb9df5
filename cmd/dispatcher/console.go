package main

import (
	"net/http"

	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/console"
)

// openConsole has the HTTP API's server answer with the pages of the web console too.
func openConsole(s *api.Server) error {
	files, err := console.Files()
	if err != nil {
		return err
	}
	for path, answer := range files {
		s.Open(http.MethodGet, path, answer)
	}
	return nil
}
