package natsbroker

import (
	"testing"
)

// TestNamesOfShards: names and subjects of a shard are translated there and back, and shard 0 has those of today.
func TestNamesOfShards(t *testing.T) {
	for _, c := range []struct{ name, there string }{
		{streamBatch, "TY3_BATCH"}, {streamArchive, "TY3_ARCHIVE"}, {streamTickets, "KV_ty3_ticket"},
		{bucketLock, "ty3_ticket"}, {streamIndex, "KV_ty3_index"},
		{streamDead, streamDead}, {streamWorkers, streamWorkers}, {"OBJ_" + bucketBlob, "OBJ_ty_blob"},
	} {
		if got := nameIn(3, c.name); got != c.there {
			t.Errorf("%s in shard 3 is %s, want %s", c.name, got, c.there)
		}
		if got := nameIn(0, c.name); got != c.name {
			t.Errorf("%s in shard 0 is %s", c.name, got)
		}
	}
	for _, c := range []struct{ subject, there string }{
		{"ty.batch.a.ty-b", "ty12.batch.a.ty-b"}, {"ty.event.a.b._.batch", "ty12.event.a.b._.batch"},
		{"ty.call.UNSAFE.p.0.a.b.0.1", "ty12.call.UNSAFE.p.0.a.b.0.1"}, {"$KV.ty_ticket.w", "$KV.ty12_ticket.w"},
		{"$KV.ty_index.x.>", "$KV.ty12_index.x.>"}, {"ty.archive.aa", "ty12.archive.aa"},
		{"ty.dead.call.a.b", "ty.dead.call.a.b"}, {"$KV.ty_worker.w", "$KV.ty_worker.w"},
		{"ty.live.event.a.b._.batch", "ty.live.event.a.b._.batch"}, {"ty.abort", "ty.abort"},
	} {
		if got := subjectIn(12, c.subject); got != c.there {
			t.Errorf("%s in shard 12 is %s, want %s", c.subject, got, c.there)
		}
		if got := canonical(c.there); got != c.subject {
			t.Errorf("%s comes back as %s", c.there, got)
		}
		if got := subjectIn(0, c.subject); got != c.subject {
			t.Errorf("%s in shard 0 is %s", c.subject, got)
		}
	}
	for _, s := range []string{"", "ty", "_INBOX.a", "requests.a", "$KV.other.x"} {
		if got := canonical(s); got != s {
			t.Errorf("%q comes back as %q", s, got)
		}
	}
}
