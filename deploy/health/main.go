// Command health ends with status 0 if a URL answers 200. It is the health check of the images in deploy, which have no
// shell and no curl.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

const (
	// timeout is less than that of the health checks in compose.yaml.
	timeout = 4 * time.Second
	// maxReason bounds what is printed of an answer.
	maxReason = 1 << 10
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: health URL")
		os.Exit(2)
	}
	if err := ask(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "health:", err)
		os.Exit(1)
	}
}

func ask(url string) (err error) {
	answer, err := (&http.Client{Timeout: timeout}).Get(url)
	if err != nil {
		return err
	}
	defer func() {
		if closed := answer.Body.Close(); err == nil {
			err = closed
		}
	}()
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	reason, err := io.ReadAll(io.LimitReader(answer.Body, maxReason))
	if err != nil {
		return fmt.Errorf("%s, and read why: %w", answer.Status, err)
	}
	return fmt.Errorf("%s: %s", answer.Status, reason)
}
