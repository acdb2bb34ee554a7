package doctor

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/server"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A script is what a server answers, read from files. A file has paragraphs, separated by empty lines:
//
//	# a comment
//	variables            names and values, separated by a tab, one pair a line
//	session              those that differ in a session of the relay
//	? STATEMENT          then one of
//	  ok                   no result set
//	  ! CODE TEXT          an error of the server
//	  columns, rows        each a line, values separated by tabs; \N is NULL, '' is empty, NOW is the time in microseconds
//
// Of a statement or variable that several files have, the last one counts.
type script struct {
	variables, session map[string]string
	answers            map[string][]string // lines, by statement
	own                map[string]bool     // the statements of the last file
}

func readScript(t *testing.T, names ...string) script {
	t.Helper()
	s := script{variables: map[string]string{}, session: map[string]string{}, answers: map[string][]string{}}
	for _, name := range names {
		path := filepath.Join("testdata", "platforms", name)
		s.own = map[string]bool{}
		text, err := os.ReadFile(path)
		testkit.Must(t, err)
		for paragraph := range strings.SplitSeq(string(text), "\n\n") {
			lines := slices.DeleteFunc(strings.Split(strings.Trim(paragraph, "\n"), "\n"), func(line string) bool { return strings.HasPrefix(line, "#") })
			if len(lines) == 0 || lines[0] == "" {
				continue
			}
			statement, is := strings.CutPrefix(lines[0], "? ")
			switch {
			case is && len(lines) > 1:
				s.answers[statement], s.own[statement] = lines[1:], true
			case lines[0] == "variables", lines[0] == "session":
				into := map[string]map[string]string{"variables": s.variables, "session": s.session}[lines[0]]
				for _, line := range lines[1:] {
					name, value, _ := strings.Cut(line, "\t")
					into[name] = value
				}
			default:
				t.Fatalf("%s: cannot read the paragraph %q", path, paragraph)
			}
		}
	}
	return s
}

// fakeServer answers by a script. A statement that the script does not have fails the test: a server would answer something.
type fakeServer struct {
	server.EmptyHandler // refuses every command but COM_QUERY
	t                   *testing.T
	script              script

	address string

	mu    sync.Mutex
	asked map[string]bool
	conns int
}

// startFake listens on 127.0.0.1 until the test ends. In the end each answer of the last file must have been used.
func startFake(t *testing.T, s script) *fakeServer {
	t.Helper()
	f := &fakeServer{t: t, script: s, asked: map[string]bool{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			running.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() {
		testkit.Must(t, listener.Close())
		running.Wait()
		for statement := range s.own {
			if !f.asked[statement] {
				t.Errorf("doctor did not ask\n? %s", statement)
			}
		}
	})
	f.address = listener.Addr().String()
	return f
}

func (f *fakeServer) serve(conn net.Conn) {
	defer conn.Close()
	f.mu.Lock()
	f.conns++
	f.mu.Unlock()
	// The handshake of MySQL 8.0, also where the script is another server's: the relay takes the version from the variables.
	users := server.NewInMemoryAuthenticationHandler(mysql.AUTH_NATIVE_PASSWORD)
	testkit.Must(f.t, users.AddUser(fakeUser, fakePassword))
	c, err := server.NewServer("8.0.31", mysql.DEFAULT_COLLATION_ID, mysql.AUTH_NATIVE_PASSWORD, nil, nil).NewCustomizedConn(conn, users, f)
	for err == nil && !c.Closed() {
		err = c.HandleCommand()
	}
}

const (
	fakeUser     = "canal_outbox"
	fakePassword = "not-a-secret"
)

var shownVariables = regexp.MustCompile(`^SHOW (GLOBAL|SESSION) VARIABLES WHERE Variable_name IN \('(.*)'\)$`)

// HandleQuery implements server.Handler.
func (f *fakeServer) HandleQuery(query string) (*mysql.Result, error) {
	f.mu.Lock()
	f.asked[query] = true
	f.mu.Unlock()
	if asked := shownVariables.FindStringSubmatch(query); asked != nil {
		return f.showVariables(asked[1] == "SESSION", strings.Split(asked[2], "','"))
	}
	lines, known := f.script.answers[query]
	if !known {
		f.t.Errorf("the script has no answer to\n? %s", query)
		return nil, mysql.NewError(mysql.ER_PARSE_ERROR, "unknown to the fake server: "+query)
	}
	if code, isError := strings.CutPrefix(lines[0], "! "); isError {
		number, text, _ := strings.Cut(code, " ")
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return nil, err
		}
		return nil, mysql.NewError(uint16(n), text)
	}
	if lines[0] == "ok" {
		return nil, nil
	}
	return resultSet(lines)
}

func (f *fakeServer) showVariables(session bool, names []string) (*mysql.Result, error) {
	lines := []string{"Variable_name\tValue"}
	for _, name := range slices.Sorted(slices.Values(names)) {
		value, has := f.script.variables[name]
		if own, differs := f.script.session[name]; session && differs {
			value, has = own, true
		}
		if has {
			lines = append(lines, name+"\t"+value)
		}
	}
	return resultSet(lines)
}

// resultSet makes a result set of lines.
func resultSet(lines []string) (*mysql.Result, error) {
	var rows [][]any
	for _, line := range lines[1:] {
		var row []any
		for value := range strings.SplitSeq(line, "\t") {
			switch value {
			case `\N`:
				row = append(row, nil)
			case "NOW":
				row = append(row, strconv.AppendInt(nil, time.Now().UnixMicro(), 10))
			case "''":
				row = append(row, []byte{})
			default:
				row = append(row, []byte(value)) // not text, of which the library makes NULL when it is empty
			}
		}
		rows = append(rows, row)
	}
	set, err := mysql.BuildSimpleTextResultset(strings.Split(lines[0], "\t"), rows)
	if err != nil {
		return nil, err
	}
	return mysql.NewResult(set), nil
}
