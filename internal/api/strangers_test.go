package api

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestStrangersMakeRoom fills the places of those who have shown no token. What they do with their connections is
// nothing that ends one: they have asked for a page, say, and keep it. After a time their places are for others, the
// longest held ones first; those of an agent stay.
func TestStrangersMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{conns: newConnections()}
		open := func() (server, client net.Conn) {
			server, client = net.Pipe()
			s.ConnState(server, http.StateNew)
			return server, client
		}
		isOpen := func(client net.Conn) bool { return client.SetReadDeadline(time.Time{}) == nil }
		own, agents := open()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if p := s.conns.own(r.WithContext(s.ConnContext(r.Context(), own)), caller{agent: "a"}); p != nil {
			t.Fatal(p)
		}
		var strangers []net.Conn
		for range MaxStrangers {
			_, client := open()
			strangers = append(strangers, client)
			time.Sleep(time.Microsecond)
		}
		if early, client := open(); isOpen(client) {
			t.Error("a stranger too many finds room at once")
		} else {
			s.ConnState(early, http.StateClosed)
		}
		time.Sleep(HeaderTimeout)
		for n := range 3 {
			if _, client := open(); !isOpen(client) {
				t.Errorf("newcomer %d finds no room after %s", n, HeaderTimeout)
			}
		}
		for n, client := range strangers[:6] {
			if isOpen(client) != (n >= 3) {
				t.Errorf("stranger %d is still there: %t", n, n < 3)
			}
		}
		if !isOpen(agents) {
			t.Error("an agent's connection had to go")
		}
		if n := s.conns.each[""]; n != MaxStrangers || len(s.conns.all) != n+1 {
			t.Errorf("%d strangers of %d connections are counted", n, len(s.conns.all))
		}
	})
}
