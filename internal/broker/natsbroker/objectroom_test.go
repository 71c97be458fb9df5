package natsbroker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/testenv"
)

// longObjects is an object store of objects that are said to be as long as one may be. Who reads one waits.
type longObjects struct {
	jetstream.ObjectStore
	release chan struct{}

	mu sync.Mutex
	// reading is how many read each object now: a read that takes long is repeated. most is the most objects at a time.
	reading map[string]int
	most    int
}

func (l *longObjects) GetInfo(context.Context, string, ...jetstream.GetObjectInfoOpt) (*jetstream.ObjectInfo, error) {
	return &jetstream.ObjectInfo{Size: broker.MaxObjectBytes}, nil
}

func (l *longObjects) GetBytes(_ context.Context, name string, _ ...jetstream.GetObjectOpt) ([]byte, error) {
	l.count(name, 1)
	defer l.count(name, -1)
	<-l.release
	return []byte("what is in it"), nil
}

// count notes that so many more read an object, and returns how many objects are read now.
func (l *longObjects) count(name string, more int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reading[name] += more; l.reading[name] == 0 {
		delete(l.reading, name)
	}
	l.most = max(l.most, len(l.reading))
	return len(l.reading)
}

// TestADispatcherReadsOnlySoManyBytesAtATime: many agents read a long object each, all at once. Each gets it, and a
// dispatcher has in its memory at a time what there is room for.
func TestADispatcherReadsOnlySoManyBytesAtATime(t *testing.T) {
	t.Parallel()
	s := testenv.Guarded(t)
	b := testenv.BrokerAs(t, s, access.Principal{Role: access.Dispatcher}, "/dispatcher")
	long := &longObjects{release: make(chan struct{}), reading: map[string]int{}}
	b.WrapObjects(func(of jetstream.ObjectStore) jetstream.ObjectStore {
		long.ObjectStore = of
		return long
	})
	defer answers(t, b)()
	defer close(long.release)
	const room = natsbroker.MaxAnswerBytes / broker.MaxObjectBytes
	asked, answered := 0, make(chan *nats.Msg, 10*room)
	for _, agent := range []string{"one", "other"} {
		nc := testenv.ConnAs(t, s, access.Principal{Role: access.Agent, Name: agent})
		for range 2 * room {
			inbox := nc.NewInbox()
			if _, err := nc.ChanSubscribe(inbox, answered); err != nil {
				t.Fatal(err)
			}
			m := nats.NewMsg("ty.ask.get")
			m.Reply = inbox
			m.Header.Set("Toolyard-Stored", fmt.Sprintf(`{"name": "data.%d"}`, asked))
			if err := nc.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
			asked++
		}
	}
	testenv.Until(t, "as many are read as there is room for", func() bool { return long.count("", 0) >= room })
	deadline := time.After(30 * time.Second)
	for ended := 0; ended < asked; {
		select {
		case long.release <- struct{}{}:
		case m := <-answered:
			if problem := m.Header.Get("Toolyard-Problem"); problem != "" {
				t.Fatal(problem)
			}
			if len(m.Data) == 0 {
				ended++
			}
		case <-deadline:
			t.Fatalf("%d of %d requests are answered", ended, asked)
		}
	}
	long.mu.Lock()
	defer long.mu.Unlock()
	if long.most > room {
		t.Errorf("%d objects of %d bytes were read at a time", long.most, broker.MaxObjectBytes)
	}
}
