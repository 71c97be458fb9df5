package natsbroker_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestASnapshotOfALargeStream: the server reads and checks all of a stream before it answers. That may take minutes,
// and the stream is saved all the same.
func TestASnapshotOfALargeStream(t *testing.T) {
	bubble.Run(t, broker.Settings{}, func(e *bubble.Env) {
		e.Broker("test")
		nc := e.Conn("server")
		const stream = "TY_EVENT"
		answering, err := nc.Subscribe("$JS.API.STREAM.SNAPSHOT."+stream, func(m *nats.Msg) {
			time.Sleep(5 * time.Minute) // of the bubble: 30 GB at 100 MB/s
			var asked struct {
				To string `json:"deliver_subject"`
			}
			if err := json.Unmarshal(m.Data, &asked); err != nil {
				t.Error(err)
			}
			end := nats.NewMsg(asked.To)
			end.Header.Set("Status", "204")
			for _, err := range []error{
				m.Respond([]byte(`{"config":{"name":"` + stream + `"},"state":{}}`)),
				nc.Publish(asked.To, []byte("all of it")), nc.PublishMsg(end),
			} {
				if err != nil {
					t.Error(err)
				}
			}
		})
		must.OK(t, err)
		defer answering.Unsubscribe() //nolint:errcheck // the connection ends with the test
		var data bytes.Buffer
		saved, err := natsbroker.SaveStream(e.Context(), e.Conn("backup"), stream, &data)
		if err != nil || data.String() != "all of it" || len(saved.Config) == 0 {
			t.Errorf("%q is saved, with %s: %v", data.String(), saved.Config, err)
		}
	})
}

// TestASnapshotOfAStreamWithoutLeader: of a stream of which no server answers, that is said soon.
func TestASnapshotOfAStreamWithoutLeader(t *testing.T) {
	bubble.Run(t, broker.Settings{}, func(e *bubble.Env) {
		nc := e.Conn("backup")
		// It stands for a cluster, where servers that do not lead a stream get requests for it and do not answer.
		silent, err := e.Conn("server").Subscribe("$JS.API.STREAM.SNAPSHOT.*", func(*nats.Msg) {})
		must.OK(t, err)
		defer silent.Unsubscribe() //nolint:errcheck // the connection ends with the test
		e.Broker("test")
		e.Server.LoseLeader("TY_EVENT")
		defer e.Server.ElectLeader("TY_EVENT")
		began := time.Now()
		_, err = natsbroker.SaveStream(e.Context(), nc, "TY_EVENT", &bytes.Buffer{})
		if took := time.Since(began); err == nil || took > time.Minute {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// TestARestoreWhileTheClusterMissesAServer: for a moment the leader of a cluster may not have heard of all servers. The
// stream is made when it has. One for which no server has room is refused at once.
func TestARestoreWhileTheClusterMissesAServer(t *testing.T) {
	for why, want := range map[string]bool{"peer offline": true, "peer offline, insufficient storage": false} {
		t.Run(why, func(t *testing.T) {
			bubble.Run(t, broker.Settings{}, func(e *bubble.Env) {
				nc := e.Conn("server")
				const stream, to = "TY_EVENT", "restored"
				refused, got := 0, ""
				answer := func(m *nats.Msg, text string) {
					if err := m.Respond([]byte(text)); err != nil {
						t.Error(err)
					}
				}
				for subject, answers := range map[string]nats.MsgHandler{
					"$JS.API.STREAM.RESTORE." + stream: func(m *nats.Msg) {
						if refused++; refused < 5 {
							answer(m, `{"error":{"code":400,"err_code":10005,"description":"no suitable peers for `+
								`placement, `+why+`"}}`)
							return
						}
						answer(m, `{"deliver_subject":"`+to+`"}`)
					},
					to: func(m *nats.Msg) { got += string(m.Data); answer(m, "") },
				} {
					sub, err := nc.Subscribe(subject, answers)
					must.OK(t, err)
					defer sub.Unsubscribe() //nolint:errcheck // the connection ends with the test
				}
				must.OK(t, nc.Flush())
				err := natsbroker.RestoreStream(e.Context(), e.Conn("backup"), stream, natsbroker.StreamBackup{},
					strings.NewReader("all of it"))
				if done := err == nil && got == "all of it"; done != want {
					t.Errorf("%q is restored after %d answers: %v", got, refused, err)
				}
			})
		})
	}
}
