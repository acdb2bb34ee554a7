package operator

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

const (
	seeHandbook  = "; what to do: docs/operations/"
	databaseAway = "The database is away"
)

// answered finds the number of the server's answer in the text of an error, as both client libraries write it.
var answered = regexp.MustCompile(`(?i)\berror (\d{4})\b`)

// Section is the section of the handbook for a problem whose text holds an error of the database; otherwise where it holds none that has
// a section of its own.
func Section(text, otherwise string) string {
	found := answered.FindStringSubmatch(text)
	if found == nil {
		return otherwise
	}
	code, _ := strconv.Atoi(found[1]) // four digits
	switch code {
	case 1044, 1045, 1142, 1143, 1227, 1698: // databases, logins, tables, columns, single privileges
		return "Privileges were changed"
	case 1054, 1146, 1049: // BAD_FIELD_ERROR, NO_SUCH_TABLE, BAD_DB_ERROR
		return "A column or a table is gone"
	}
	if server.ClassifyCode(uint16(code), "") == server.Data {
		return "Rows that cannot be written"
	}
	return otherwise
}

// SeeCause is See with the section for the database's error in the sentence; a sentence that names a section stays as it is.
func SeeCause(sentence, otherwise string) string {
	if strings.Contains(sentence, seeHandbook) {
		return sentence
	}
	return See(sentence, Section(sentence, otherwise))
}

// unlessAway is a section of the handbook, unless the database does not answer: that is the cause then.
func unlessAway(st *Status, section string) string {
	if st.Source.Away != "" {
		return databaseAway
	}
	return section
}

// underCause puts the cause that several problems share first, and those under it: what a database that does not answer leads to is shown
// once. The others keep their order. away is why it does not answer; "" when it does.
func underCause(away string, problems []string) (list []string) {
	if away == "" {
		return problems
	}
	list = []string{See("the database does not answer: "+away, databaseAway)}
	var others []string
	for _, p := range problems {
		if text, is := strings.CutSuffix(p, See("", databaseAway)); is {
			list = append(list, "for this reason: "+text)
		} else {
			others = append(others, p)
		}
	}
	return append(list, others...)
}
