package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// explain says of a document that could not be read where it goes wrong, as line
// and column, both from 1, and what was expected there.
func explain(data []byte, err error) error {
	var syntax *json.SyntaxError
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: %w; expected one JSON object", position(data, syntax.Offset), err)
	case errors.As(err, &wrongType):
		return fmt.Errorf("%s: %sis a JSON %s; expected %s", position(data, wrongType.Offset), field(wrongType), wrongType.Value, described(wrongType))
	case errors.Is(err, io.EOF):
		return errors.New("it is empty; expected one JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: it ends in the middle; expected one JSON object", position(data, int64(len(data))))
	}
	// What is left is a field that Profile does not have, which only the text tells.
	return fmt.Errorf("%s; expected one of docs/plugins.md, What a profile says", strings.TrimPrefix(err.Error(), "json: "))
}

// position is where the last of the first offset bytes stands.
func position(data []byte, offset int64) string {
	before := data[:min(max(offset-1, 0), int64(len(data)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Sprintf("line %d, column %d", line, column)
}

// field is the name of the field with a space behind it; empty for the document itself.
func field(e *json.UnmarshalTypeError) string {
	if e.Field == "" {
		return ""
	}
	return e.Field + " "
}

// described is what a value should have been, in the words of JSON.
func described(e *json.UnmarshalTypeError) string {
	words := map[string]string{"int": "a whole number", "uint": "a whole number from 0 on", "bool": "true or false", "slice": "a list", "struct": "an object"}
	if text, ok := words[e.Type.Kind().String()]; ok {
		return text
	}
	return "a string"
}
