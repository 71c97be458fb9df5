package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

func ExampleNew() {
	type in struct {
		Text string `json:"text" jsonschema:"the text whose words are counted"`
	}
	count, err := tool.New(tool.Typed[in, string]{
		Declaration: tool.Declaration{
			Name:        "count_words",
			Description: "Counts the words of a text.",
			Class:       tool.ClassRule{Static: toolyard.ReadOnly}, // may run beside others
			ReadOnly:    true,                                      // and so needs no permission in the workspace
		},
		Check: func(_ context.Context, _ tool.Env, i in) error {
			if i.Text == "" {
				return tool.Invalid("text is empty; give the text to count")
			}
			return nil
		},
		Run: func(_ context.Context, _ tool.Env, i in) (string, error) {
			return fmt.Sprint(len(strings.Fields(i.Text)), " words"), nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	out, err := count.Run(context.Background(), tool.Env{}, json.RawMessage(`{"text": "to be or not to be"}`))
	fmt.Println(out.Text, err)
	// Output: 6 words <nil>
}
