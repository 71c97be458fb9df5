// Package pool runs dispatchers and workers with tools made for the test, in one process on a real nats-server.
package pool
