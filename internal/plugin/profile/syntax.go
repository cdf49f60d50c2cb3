package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// locate adds to the error of a document that could not be parsed its position, as line and column,
// both from 1, and what was expected there.
func locate(data []byte, err error) error {
	var syntax *json.SyntaxError
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: %w; expected one JSON object", position(data, syntax.Offset), err)
	case errors.As(err, &wrongType):
		return fmt.Errorf("%s: %sis a JSON %s; expected %s", position(data, wrongType.Offset), fieldPrefix(wrongType), wrongType.Value, jsonTypeName(wrongType))
	case errors.Is(err, io.EOF):
		return errors.New("empty file; expected one JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: unexpected end; expected one JSON object", position(data, int64(len(data))))
	}
	// An unknown field, which has no separate error type.
	return fmt.Errorf("%s; expected a field of docs/reference/profiles.md, Profile fields", strings.TrimPrefix(err.Error(), "json: "))
}

// position returns line and column of the last of the first offset bytes.
func position(data []byte, offset int64) string {
	before := data[:min(max(offset-1, 0), int64(len(data)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Sprintf("line %d, column %d", line, column)
}

// fieldPrefix returns the name of the field and a space; empty for the document itself.
func fieldPrefix(e *json.UnmarshalTypeError) string {
	if e.Field == "" {
		return ""
	}
	return e.Field + " "
}

// jsonTypeName returns the JSON type that was expected.
func jsonTypeName(e *json.UnmarshalTypeError) string {
	names := map[string]string{"int": "a whole number", "uint": "a whole number from 0 on", "bool": "true or false", "slice": "a list", "struct": "an object"}
	if name, ok := names[e.Type.Kind().String()]; ok {
		return name
	}
	return "a string"
}
