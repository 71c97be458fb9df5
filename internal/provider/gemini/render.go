package gemini

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/answer"
)

// content, part, functionResponse and response are the output: the fields of genai.Content, genai.Part and
// genai.FunctionResponse that are used here, and the two keys to which the API gives a meaning.
type content struct {
	Role  string `json:"role"`
	Parts []part `json:"parts"`
}

type part struct {
	FunctionResponse functionResponse `json:"functionResponse"`
}

type functionResponse struct {
	ID       string   `json:"id,omitempty"`
	Name     string   `json:"name"`
	Response response `json:"response"`
	Parts    []media  `json:"parts,omitempty"`
}

// media is genai.FunctionResponsePart with data.
type media struct {
	InlineData inlineData `json:"inlineData"`
}

type inlineData struct {
	MIMEType string `json:"mimeType"`
	Data     string `json:"data"`
}

// response has an output or an error: an empty output is still an output. Its other keys are free.
type response struct {
	Output *string          `json:"output,omitempty"`
	Error  *string          `json:"error,omitempty"`
	Origin *toolyard.Origin `json:"origin,omitempty"`
}

// refusedImage is a type of image that the other providers accept. This API refuses the whole request.
const refusedImage = "image/gif"

// Render writes one user content with a functionResponse part for every answer, in order. An id goes back only if it
// came from the model; the others are matched by name and order. Images and PDF documents are parts of the response,
// and the text has a line for each. A GIF has only its line.
func Render(answers []answer.Answer) ([]byte, error) {
	c := content{Role: "user", Parts: make([]part, len(answers))}
	for i := range answers {
		a := &answers[i]
		r := functionResponse{Name: a.Tool, Response: response{Origin: a.Origin}}
		if !strings.HasPrefix(a.CallID, madeID) {
			r.ID = a.CallID
		}
		if a.IsError {
			r.Response.Error = &a.Text
		} else {
			r.Response.Output = &a.Text
		}
		for n := range a.Parts {
			if p := &a.Parts[n]; answer.MediaOf(p) != answer.Words && p.MIMEType != refusedImage {
				r.Parts = append(r.Parts, media{inlineData{p.MIMEType, answer.Base64(p)}})
			}
		}
		c.Parts[i].FunctionResponse = r
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("rendering results as Gemini content: %w", err)
	}
	return data, nil
}
