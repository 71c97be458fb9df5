package sandbox

// This processor is newer and has no old calls.
var (
	allowedOld   = []uintptr{}
	forbiddenOld = []uintptr{}
	oldRules     = map[uintptr][]argument{}
	oldOpens     []opening
)
