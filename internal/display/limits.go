package display

// The limits of what a person can be shown. A longer input is refused: nobody reads it.
const (
	// MaxBytes is how long an input may be, as JSON.
	MaxBytes = 32 << 10
	// MaxLines is how many lines of [Columns] columns it may take.
	MaxLines = 2_000
	// Columns is how wide lines are where nobody says otherwise.
	Columns = 80
	// MaxDiffLines is how many lines of what a call would change, or has changed, are shown where nobody says
	// otherwise.
	MaxDiffLines = 200
	// MinColumns is how wide lines are at least.
	MinColumns = 40
)

const (
	maxBlanks     = 8         // blanks in a row that stand one by one; more are counted
	maxEmptyLines = 3         // empty lines in a row that stand one by one; more are counted
	maxWord       = 60        // characters of a text that stands beside its name
	wideColumns   = 2         // columns of a character that is not ASCII, at most
	maxDiffCells  = 4_000_000 // pairs of lines that a comparison looks at; with more, one text stands below the other
)
