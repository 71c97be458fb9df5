package broker

import (
	"github.com/toolyard/toolyard"
)

// AbortNotice tells workers to stop calls at once. That they are to end stands in the log.
type AbortNotice struct {
	Agent toolyard.Agent   `json:"agent"`
	Batch toolyard.BatchID `json:"batch"`
	Calls []int            `json:"calls"`
	Code  toolyard.Code    `json:"code"`
	// Culprit is the call that failed, for sibling_canceled; Reason is why somebody canceled, and By who did.
	Culprit string `json:"culprit,omitempty"`
	Reason  string `json:"reason,omitempty"`
	By      string `json:"by,omitempty"`
}
