package testkit

import (
	"context"
	"os"
	"sync"
)

// shared holds the servers that all tests of one test binary use, because a start costs seconds.
var shared struct {
	sync.Mutex
	servers map[string]anyServer
}

// anyServer is a database or a broker.
type anyServer interface {
	Close() error
	Crash() string // how it ended, if it was not told to
}

// sharedServer returns the server of that key and starts it on first use. A failed start is tried again by the next test, and a
// server that has crashed is replaced: the tests that come after it are not its victims. Those that used it log what it said.
func sharedServer[S anyServer](t T, key string, start func(context.Context) (S, error)) S {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	s, ok := shared.servers[key].(S)
	if ok && s.Crash() != "" {
		if err := s.Close(); err != nil {
			t.Logf("close a server that has crashed: %v", err)
		}
		delete(shared.servers, key)
		ok = false
	}
	if !ok {
		var err error
		if s, err = start(context.Background()); err != nil {
			t.Fatalf("%v", err)
		}
		if shared.servers == nil {
			shared.servers = map[string]anyServer{}
		}
		shared.servers[key] = s
	}
	t.Cleanup(func() { showCrash(t, s) })
	return s
}

// SharedDatabase returns the database of this flavor that all tests of the binary share. Tests keep apart by schema
// (Database.CreateSchema) and must not stop it or purge its logs; a test that does starts its own with NewDatabase.
func SharedDatabase(t T, flavor Flavor) *Database {
	t.Helper()
	return sharedServer(t, string(chosen(flavor)), func(ctx context.Context) (*Database, error) {
		return StartDatabase(ctx, DatabaseOptions{Flavor: flavor})
	})
}

// SharedDatabaseAs is SharedDatabase for servers that are started otherwise; key names what is special about them.
func SharedDatabaseAs(t T, key string, opts DatabaseOptions) *Database {
	t.Helper()
	return sharedServer(t, key+" "+string(chosen(opts.Flavor)), func(ctx context.Context) (*Database, error) {
		return StartDatabase(ctx, opts)
	})
}

// SharedMySQL is SharedDatabase(t, MySQL).
func SharedMySQL(t T) *Database {
	t.Helper()
	return SharedDatabase(t, MySQL)
}

// SharedMariaDB is SharedDatabase(t, MariaDB).
func SharedMariaDB(t T) *Database {
	t.Helper()
	return SharedDatabase(t, MariaDB)
}

// CloseShared stops the shared servers and removes their directories. It continues after an error and returns the first one.
func CloseShared() error {
	shared.Lock()
	defer shared.Unlock()
	var first error
	for _, s := range shared.servers {
		if err := s.Close(); err != nil && first == nil {
			first = err
		}
	}
	shared.servers = nil
	return first
}

// Main is the body of TestMain in a package that uses shared servers: it runs the tests, closes the servers and exits.
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
func Main(m interface{ Run() int }) {
	code := m.Run()
	if err := CloseShared(); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		code = max(code, 1)
	}
	os.Exit(code)
}
