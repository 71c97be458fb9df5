package display

// The limits of what a person can be shown. A longer input is refused: nobody reads it.
const (
	// MaxBytes is how long an input may be, as JSON.
	MaxBytes = 32 << 10
	// MaxLines is how many lines of [Columns] columns it may take.
	MaxLines = 2_000
	// Columns is how wide lines are where nobody says otherwise, and MinColumns how wide they are at least.
	Columns, MinColumns = 80, 40
)

const (
	maxBlanks     = 8         // blanks in a row that stand one by one; more are counted
	maxEmptyLines = 3         // the same of empty lines
	maxWord       = 60        // characters of a text that stands beside its name
	maxDiffCells  = 4_000_000 // pairs of lines that a comparison looks at; with more, one text stands below the other
)
