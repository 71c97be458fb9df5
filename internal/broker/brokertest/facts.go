package brokertest

import "slices"

// Cases are all cases.
var Cases = slices.Concat(appendCases, readCases, consumeCases, bucketCases)

// Fact is something that our code relies on.
type Fact struct {
	Is string
	// Cases hold it. Without is why none does.
	Cases   []string
	Without string
}

// Facts are the facts, and what holds them.
var Facts = []Fact{
	{
		Is: "an append with an expected sequence of a literal subject is stored behind that message or " +
			"refused with its successor",
		Cases: []string{"AnAppendBehindTheEndIsStored"},
	},
	{
		Is:    "an expected sequence may be that of a filter, or of the stream",
		Cases: []string{"ExpectedOnAnotherSubject", "ExpectedSequenceOfTheStream"},
	},
	{
		Is:      "with replicas, an expected sequence of a wildcard does not see writes that are in flight",
		Without: "it is a race inside a cluster; our code expects literal subjects only",
	},
	{
		Is:      "with replicas, an append may be refused with 10164 while another one is in flight",
		Without: "it is a race inside a cluster; the broker repeats such appends, which its own tests hold",
	},
	{
		Is:    "a publish may name its stream",
		Cases: []string{"ExpectedStream"},
	},
	{
		Is:    "deletions move the end of a subject back",
		Cases: []string{"TheEndOfASubjectMovesBackWithDeletions", "WhatHasExpiredIsGone"},
	},
	{
		Is:    "nobody answers where no stream is",
		Cases: []string{"NoStreamNoAnswer"},
	},
	{
		Is:    "a message id is stored once within its window",
		Cases: []string{"TheSameIDIsStoredOnce", "TheWindowOfIDsIsNotLongerThanTheAge"},
	},
	{
		Is:    "without replicas the expected sequence is checked before the id, with replicas behind it",
		Cases: []string{"WhichCheckComesFirstDependsOnReplicas"},
	},
	{
		Is:      "a message id is forgotten by a restart when its message is gone",
		Without: "a restart is a fault: membroker's own tests have it, test/faults has the real one",
	},
	{
		Is: "a stream that discards new messages refuses them, one that discards old ones loses them " +
			"silently",
		Cases: []string{
			"AFullStreamRefusesTheNew", "BytesAreALimit", "AFullStreamLosesTheOldOnesSilently",
			"TheNewestOfASubjectStays", "AMessageThatIsTooLong",
		},
	},
	{
		Is:    "who may publish to a stream with rollups may empty it",
		Cases: []string{"ARollupDeletesTheWholeStream", "ARollupNeedsPermission"},
	},
	{
		Is: "a TTL is a second at least, needs permission, and leaves a mark only when it was over",
		Cases: []string{
			"ATTLNeedsPermission", "ATTLIsASecondAtLeast", "WhatHasExpiredIsGone",
			"AMarkTakesThePlaceOfWhatHasExpired", "ADeletionLeavesNoMark",
		},
	},
	{
		Is: "a live copy says where its message stands and which one its subject had before; what is refused " +
			"has none",
		Cases: []string{"LiveCopiesSayWhatCameBefore"},
	},
	{
		Is:    "reads through the leader: by sequence, the last and the next one on a subject",
		Cases: []string{"ReadThroughTheLeader"},
	},
	{
		Is:    "direct reads, several at once, and none without permission",
		Cases: []string{"DirectReads", "NoDirectReadsWithoutPermission"},
	},
	{
		Is:      "a direct read may lie behind",
		Without: "it is a race inside a cluster; membroker lies behind when it is told to",
	},
	{
		Is:    "a stream counts what stands on each subject",
		Cases: []string{"HowManyStandOnEachSubject"},
	},
	{
		Is: "purges: up to a sequence, of a subject, but for the last ones",
		Cases: []string{
			"APurgeUpToASequence", "APurgeOfManySubjectsUpToASequence", "APurgeThatKeeps",
			"AnEmptyStreamGoesOnBehindWhatItHad",
			"DeletionsMayBeDenied", "ADeletedMessage",
		},
	},
	{
		Is:    "a stream is made once, and changed in what may change",
		Cases: []string{"MakingAStreamAgain", "AStreamThatIsChanged", "StreamsByName"},
	},
	{
		Is:    "the defaults of consumers",
		Cases: []string{"TheDefaultsOfAConsumer"},
	},
	{
		Is:    "what is not acknowledged within its wait comes again",
		Cases: []string{"WhatIsNotAcknowledgedComesAgain", "WorkInProgressIsNotDeliveredAgain"},
	},
	{
		Is:    "acks are not fenced",
		Cases: []string{"AcksAreNotFenced"},
	},
	{
		Is:    "an ack takes a message out of a work queue; the consumer says what it has handed out",
		Cases: []string{"AnAckTakesAMessageOutOfAQueue"},
	},
	{
		Is: "naks: at once, before what is new, in their order; with a delay they keep their place among the " +
			"pending",
		Cases: []string{"ANakComesAgainAtOnceAndBeforeTheNew", "ANakWithADelayKeepsItsPlace", "TooManyWithoutAnAck"},
	},
	{
		Is:    "what was delivered too often stays, invisible, with one advisory",
		Cases: []string{"DeliveredTooOften"},
	},
	{
		Is:    "backoff takes the place of the ack wait",
		Cases: []string{"BackoffNeedsAsManyDeliveries", "BackoffTakesTheAckWaitsPlace"},
	},
	{
		Is:    "a terminated message is out of the queue, with its reason in an advisory",
		Cases: []string{"ATerminatedMessage"},
	},
	{
		Is:    "what is deleted is not delivered again",
		Cases: []string{"ADeletedMessageIsNotDeliveredAgain", "APurgeTakesWhatIsPending"},
	},
	{
		Is:    "consumers of a work queue do not overlap and take all",
		Cases: []string{"ConsumersOfAQueueDoNotOverlap"},
	},
	{
		Is:    "a consumer is made once",
		Cases: []string{"MakingAConsumerAgain"},
	},
	{
		Is:    "a consumer gets what its filters and its beginning say",
		Cases: []string{"AConsumerGetsItsFilter", "WhereAConsumerBegins", "AnOrderedConsumerReadsAll"},
	},
	{
		Is: "requests are served in turn, and end with a status",
		Cases: []string{"TheRequestThatWaitedLongestIsServed", "HowARequestEnds", "ARequestHasAHeartbeat",
			"TooManyRequests"},
	},
	{
		Is:    "nothing is handed to a request that nobody waits for",
		Cases: []string{"ARequestThatNobodyWaitsForGetsNothing", "AClientThatIsGoneGetsNothing"},
	},
	{
		Is:      "a single server that is killed forgets the deliveries of its last tenth of a second",
		Without: "it is a fault: membroker's own tests have it, test/faults has the real one",
	},
	{
		Is:    "an ephemeral consumer that nobody uses is deleted",
		Cases: []string{"AnUnusedEphemeralConsumerIsDeleted"},
	},
	{
		Is: "keys: create, update, delete, purge, watch, TTL",
		Cases: []string{
			"KeysAreComparedAndSet", "AWatchTellsWhatIsThereAndWhatComes", "AWatchOfAnEmptyBucketIsCaughtUp",
			"AKeyWithATTL", "ABucketIsAStream",
		},
	},
	{
		Is:    "objects",
		Cases: []string{"Objects"},
	},
	{
		Is: "core NATS: one of a group is asked, each sender's order holds, no message is longer than the " +
			"server says",
		Cases: []string{
			"OneOfAGroupIsAsked", "WhatIsUnsubscribedIsNotHeard", "WhatOneSendsComesInItsOrder",
			"AMessageThatIsTooLongForTheServer",
		},
	},
	{
		Is: "replies of the server are published unchecked, also into streams",
		Without: "no code of ours relies on it: accounts keep it out (ADR 28). membroker sends replies to " +
			"clients only",
	},
	{
		Is:      "atomic batches, counters, schedules, priority groups, pauses, mirrors, interest retention",
		Without: "no code of ours uses them; membroker refuses to make such streams and consumers",
	},
}
