package display

// The limits of what a person can be shown. A longer input is refused, because nobody would read it.
const (
	// MaxBytes is the longest input, as JSON.
	MaxBytes = 32 << 10
	// MaxLines is the most lines of [Columns] columns that it may take.
	MaxLines = 2_000
	// Columns is the default width of a line.
	Columns = 80
	// MaxDiffLines is the default number of lines of a diff that are shown.
	MaxDiffLines = 200
	// MinColumns is the minimum width of a line.
	MinColumns = 40
)

const (
	maxBlanks     = 8         // blanks in a row that are shown one by one; more are counted
	maxEmptyLines = 3         // empty lines in a row that are shown one by one; more are counted
	maxWord       = 60        // characters of a text on the line of its name
	wideColumns   = 2         // the largest width of a character that is not ASCII
	maxDiffCells  = 4_000_000 // pairs of lines that a comparison examines; with more, one text follows the other
)
