package membroker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// start starts a server of a test's bubble, or outside of one when settle is nil.
func start(t testing.TB, opts Options) *Server {
	t.Helper()
	s := New(opts)
	t.Cleanup(s.Close)
	return s
}

// connect connects a party, until the test ends.
func connect(t testing.TB, s *Server, party string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append([]nats.Option{
		nats.InProcessServer(s.Dial(party)), nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(func(int) time.Duration { return 50 * time.Millisecond }),
	}, opts...)
	nc, err := nats.Connect("", opts...)
	must.OK(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func TestRequestsInABubble(t *testing.T) {
	Bubble(t, func(t *testing.T) {
		s := start(t, Options{Settle: synctest.Wait, Seed: 7})
		server, client := connect(t, s, "server"), connect(t, s, "client")
		_, err := server.QueueSubscribe("echo.*", "group", func(m *nats.Msg) {
			time.Sleep(time.Hour) // costs nothing
			if err := m.RespondMsg(&nats.Msg{Header: nats.Header{"A": {"b"}}, Data: m.Data}); err != nil {
				t.Error(err)
			}
		})
		must.OK(t, err)
		must.OK(t, server.Flush())
		before := time.Now()
		m, err := client.Request("echo.x", []byte("hello"), 2*time.Hour)
		if err != nil || string(m.Data) != "hello" || m.Header.Get("A") != "b" {
			t.Fatalf("got %v, %v", m, err)
		}
		if took := time.Since(before); took != time.Hour {
			t.Errorf("a request took %s of the bubble's time", took)
		}
		if _, err := client.Request("nobody", nil, time.Second); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("a request that nobody hears: %v", err)
		}
		if _, err := client.Request("echo.x", nil, time.Second); !errors.Is(err, nats.ErrTimeout) {
			t.Errorf("a request whose answer is late: %v", err)
		}
		time.Sleep(2 * time.Hour) // until the last handler has returned
	})
}

func TestRequestsOutsideOfABubble(t *testing.T) {
	s := start(t, Options{})
	server, client := connect(t, s, "server"), connect(t, s, "client")
	if _, err := server.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		t.Fatal(err)
	}
	must.OK(t, server.Flush())
	for i := range 100 {
		want := fmt.Sprint(i)
		m, err := client.Request("echo", []byte(want), time.Minute)
		if err != nil || string(m.Data) != want {
			t.Fatalf("got %v, %v", m, err)
		}
	}
}

// chatter has some parties publish and listen at once, and returns what each has heard and the steps that were taken.
func chatter(t *testing.T, seed uint64) (heard []string, steps []string) {
	Bubble(t, func(t *testing.T) {
		s := start(t, Options{Settle: synctest.Wait, Seed: seed, Trace: func(st Step) {
			steps = append(steps, fmt.Sprintf("%s %s.%d %s", st.Kind, st.Party, st.Conn, st.What))
		}})
		const parties, messages = 4, 20
		heard = make([]string, parties)
		conns := make([]*nats.Conn, parties)
		for i := range parties {
			conns[i] = connect(t, s, fmt.Sprintf("party%d", i))
			if _, err := conns[i].Subscribe("talk.>", func(m *nats.Msg) { heard[i] += m.Subject + " " }); err != nil {
				t.Fatal(err)
			}
			must.OK(t, conns[i].Flush())
		}
		var all sync.WaitGroup
		for i, nc := range conns {
			all.Go(func() {
				for n := range messages {
					if err := nc.Publish(fmt.Sprintf("talk.%d.%d", i, n), nil); err != nil {
						t.Error(err)
					}
				}
				if err := nc.Flush(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		time.Sleep(time.Second) // until all is quiet
	})
	return heard, steps
}

func TestARunDependsOnItsSeedAlone(t *testing.T) {
	heard, steps := chatter(t, 1)
	again, steps2 := chatter(t, 1)
	if !slices.Equal(heard, again) || !slices.Equal(steps, steps2) {
		t.Error("the same seed gave two runs")
	}
	if other, _ := chatter(t, 2); slices.Equal(heard, other) {
		t.Error("another seed gave the same run")
	}
	for _, h := range heard { // each publisher's messages come in their order
		next := map[string]int{}
		for _, subject := range strings.Fields(h) {
			var party string
			var n int
			if _, err := fmt.Sscanf(strings.ReplaceAll(subject, ".", " "), "talk %s %d", &party, &n); err != nil {
				t.Fatal(err)
			}
			if n != next[party] {
				t.Fatalf("message %d of %s came in place of %d", n, party, next[party])
			}
			next[party]++
		}
	}
}
