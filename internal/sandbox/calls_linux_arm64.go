package sandbox

// This processor came late and has no old calls.
var (
	allowedOld   = []uintptr{}
	forbiddenOld = []uintptr{}
	oldRules     = map[uintptr][]argument{}
	oldOpens     []opening
)
