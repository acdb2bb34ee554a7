package admin

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// object is a part of the document.
type object = map[string]any

// document is the OpenAPI description of a table of routes. Format: OpenAPI 3.0.3, because more tools read it than 3.1.
func document(all []route) []byte {
	s := schemas{}
	paths := object{}
	for i := range all {
		r := &all[i]
		path := strings.TrimSuffix(strings.Replace(r.path, "...}", "}", 1), "{$}")
		item, _ := paths[path].(object)
		if item == nil {
			item = object{}
			paths[path] = item
		}
		item[strings.ToLower(r.method)] = s.operation(r)
	}
	s.of(errorBody{})
	data, err := json.MarshalIndent(object{
		"openapi": "3.0.3",
		"info": object{
			"title": "canal-outbox", "version": "1",
			"description": "What the commands and the dashboard use. Fields are added, never renamed: ignore those that you do not know.",
			"license":     object{"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
		},
		"servers": []object{{"url": "/"}},
		"paths":   paths,
		"components": object{
			"schemas":         s,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer", "description": "admin.token (operator) or admin.read_token (reader)"}},
		},
	}, "", "  ")
	if err != nil { // of a table that is a literal
		panic(err)
	}
	return append(data, '\n')
}

func (a *api) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(a.document) // a client that has gone needs no answer
}

var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

// operationID is the method with the words of the path.
func operationID(r *route) string {
	path := strings.TrimPrefix(strings.NewReplacer("{$}", "dashboard", "{", "", "}", "", "...", "", ".", "/").Replace(r.path), "/api/v1")
	id := strings.ToLower(r.method)
	for word := range strings.SplitSeq(path, "/") {
		if word != "" {
			id += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return id
}

// operation describes one route.
func (s schemas) operation(r *route) object {
	fails := func(codes ...string) object {
		out := object{}
		for _, code := range codes {
			out[code] = object{"description": failures[code], "content": object{"application/json": object{"schema": s.of(errorBody{})}}}
		}
		return out
	}
	var answers object
	switch {
	case r.raw != nil && r.needs == everyone:
		answers = object{}
	case r.raw != nil && r.needs == operatorRole:
		answers = fails("401", "403", "404", "500")
	case r.raw != nil:
		answers = fails("401")
	default:
		answers = fails("400", "401", "403", "404", "409", "500")
	}
	schema := object{"type": "string"}
	media := r.media
	switch {
	case r.do != nil && r.answer == nil:
		schema, media = s.of(empty{}), "application/json"
	case r.do != nil:
		schema, media = s.of(r.answer), "application/json"
	case media == "application/json":
		schema = object{"type": "object"}
	}
	answers["200"] = object{"description": "Done.", "content": object{media: object{"schema": schema}}}
	if r.fails {
		answers["503"] = object{"description": "It is not; the text says why.", "content": object{media: object{"schema": schema}}}
	}
	if r.absent {
		answers["404"] = object{"description": "There is no such part.", "content": object{"text/plain": object{"schema": object{"type": "string"}}}}
	}
	op := object{"operationId": operationID(r), "summary": r.about, "responses": answers, "x-role": r.needs.String()}
	if r.needs != everyone {
		op["security"] = []object{{"token": []string{}}}
	}
	if r.acts() {
		body := object{"type": "object"}
		if r.body != nil {
			body = s.of(r.body)
		}
		op["requestBody"] = object{"content": object{"application/json": object{"schema": body}}}
	}
	if params := parameters(r); params != nil {
		op["parameters"] = params
	}
	return op
}

// failures say what the statuses of errors mean.
var failures = map[string]string{
	"400": "The request cannot be meant like this (code usage).",
	"401": "No token, or a wrong one (code unauthorized).",
	"403": "The token may not, or the request comes from another page or host (code forbidden).",
	"404": "There is no such thing (code not_found).",
	"409": "It is possible, but an operator has to decide first (codes refused, needs_scan).",
	"500": "It was tried and went wrong (code failure).",
}

func parameters(r *route) (out []object) {
	inPath := placeholder.FindAllString(strings.Replace(r.path, "...}", "}", 1), -1)
	for _, p := range r.params {
		one := object{"name": p.name, "in": "query", "schema": object{"type": p.kind}}
		if p.kind == "boolean" {
			one["schema"] = object{"type": "string", "enum": []string{"0", "1", "true", "false"}}
		}
		if slices.Contains(inPath, "{"+p.name+"}") {
			one["in"], one["required"] = "path", true
		}
		if p.about != "" {
			one["description"] = p.about
		}
		out = append(out, one)
	}
	return out
}
