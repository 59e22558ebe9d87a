package config

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"github.com/agentbus/agentbus"
)

const (
	// DefaultPath is the file that is read when none is named and it exists.
	DefaultPath = "agentbus.yaml"
	// PathEnv names the file when the command line does not.
	PathEnv = "AGENTBUS_CONFIG"
	// maxFile is the most bytes read from a configuration or a secret's file.
	maxFile = 1 << 20
)

// A Source is where a configuration comes from. The zero Source is the file
// that the process's environment names, or ./agentbus.yaml.
type Source struct {
	// Path is the file. "": what AGENTBUS_CONFIG names, else ./agentbus.yaml
	// if it exists, else no file at all, which is all defaults.
	Path string
	// Env looks a variable up; nil: os.LookupEnv.
	Env func(string) (string, bool)
	// ReadFile reads the configuration and the files it names; nil: the file
	// system, up to 1 MiB a file.
	ReadFile func(string) ([]byte, error)
	// Dev allows secrets in the file itself.
	Dev bool
	// StoreOnly is for who opens the store and serves nobody: a secret that is
	// not there is no fault. A key without its secret lets nobody in.
	StoreOnly bool
	// Before is what was read of the same source before, when it is read again while
	// a bus serves. What is read then must be a file: a pipe has nothing more to say,
	// and may say it never. One that holds nothing any more is a fault, as it is for
	// a moment while it is being written, and for good where the disk was full: all
	// defaults would be a bus without agents. One that held nothing before may.
	Before *Config
	// Flags are values from the command line. They win over the environment,
	// which wins over the file (P10).
	Flags []Flag
}

// A Flag is a value from the command line.
type Flag struct {
	Name  string // as the user typed it, such as --max-depth
	Key   string // path of the key it sets, such as limits.max_depth
	Value string // as the file would write it
}

// Load reads and checks the configuration of src. An error of type [*Error]
// lists every fault that was found; the Config is nil then. The warnings name
// what this version accepts and does not act on, and what is likely not meant.
func Load(src Source) (*Config, []Warning, error) {
	src = src.complete()
	path, named := src.path()
	data, err := src.ReadFile(path)
	switch {
	case err == nil && src.Before.written() && len(bytes.TrimSpace(data)) == 0:
		return nil, nil, &Error{[]Fault{{File: path, Problem: "it holds nothing any more", Fix: "write it again; {} is a configuration of defaults"}}}
	case err == nil:
		return Parse(path, data, src)
	case !named && errors.Is(err, fs.ErrNotExist):
		return Parse("", nil, src)
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, &Error{[]Fault{{File: path, Problem: "there is no such file", Fix: "name another with --config, or write one with agentbus init " + path}}}
	}
	return nil, nil, &Error{[]Fault{{File: path, Problem: "it cannot be read: " + reason(err), Fix: "make it a file that this user may read"}}}
}

// Parse is [Load] for a file that has been read: path names it in faults, data
// is its content. Source.Path is not used.
func Parse(path string, data []byte, src Source) (*Config, []Warning, error) {
	src = src.complete()
	c := &Config{Path: path, origins: map[string]Origin{}}
	setDefaults(reflect.ValueOf(c).Elem())
	l := &loader{src: src, c: c, keysAtFault: map[string]bool{}}
	l.file(data)
	l.overrides(reflect.ValueOf(c).Elem(), "")
	l.check()
	l.forms()
	sortFaults(l.warnings)
	if len(l.faults) > 0 {
		sortFaults(l.faults)
		return nil, l.warnings, &Error{l.faults}
	}
	return c, l.warnings, nil
}

func (src Source) complete() Source {
	if src.Env == nil {
		src.Env = os.LookupEnv
	}
	if src.ReadFile == nil {
		src.ReadFile = readFile
		if src.Before != nil {
			src.ReadFile = readAgain
		}
	}
	return src
}

// path returns the file to read, and whether somebody named it.
func (src Source) path() (path string, named bool) {
	if src.Path != "" {
		return src.Path, true
	}
	if p, ok := src.Env(PathEnv); ok && p != "" {
		return p, true
	}
	return DefaultPath, false
}

// written reports whether the file of c held anything.
func (c *Config) written() bool {
	if c != nil {
		for _, o := range c.origins {
			if o.Source == "" {
				return true
			}
		}
	}
	return false
}

// readAgain is readFile for what can be read twice.
func readAgain(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() && path != os.DevNull {
		err = errors.New("it is no regular file, which could be read again")
	}
	if err != nil {
		return nil, err
	}
	return readFile(path)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errors.New("it is larger than 1 MiB")
	}
	return data, err
}

// reason returns err without the path that the message names already.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// A loader fills one Config and collects what is wrong with it.
type loader struct {
	src      Source
	c        *Config
	faults   []Fault
	warnings []Warning

	keysAtFault map[string]bool // the keys of faults
	formless    []formless      // values that the schema refuses
}

// overrides sets what the environment and the command line say, in section v.
// A variable that is set and empty counts as not set.
func (l *loader) overrides(v reflect.Value, path string) {
	for _, f := range fieldsOf(v.Type()) {
		key := join(path, f.name)
		if f.env != "" {
			if text, ok := l.src.Env(f.env); ok && text != "" {
				l.override(f, v.Field(f.index), key, text, "env "+f.env)
			}
		}
		for _, flag := range l.src.Flags {
			if flag.Key == key && isScalar(f.typ) {
				l.override(f, v.Field(f.index), key, flag.Value, "flag "+flag.Name)
			}
		}
		if isSection(f.typ) && !f.later {
			l.overrides(v.Field(f.index), key)
		}
	}
}

func (l *loader) override(f field, v reflect.Value, key, text, from string) {
	l.c.origins[key] = Origin{Source: from}
	if m := f.parse(text, v); m != nil {
		l.add(Fault{Source: from, Key: key, Problem: m.problem, Fix: m.fix})
		return
	}
	l.form(f, key, text)
}

func (l *loader) add(f Fault) {
	l.faults = append(l.faults, f)
	l.keysAtFault[f.Key] = true
}

// faulty reports whether a fault of the key at path is known already.
func (l *loader) faulty(path string) bool { return l.keysAtFault[path] }

// fault reports what is wrong with the key at path.
func (l *loader) fault(path, problem, fix string) {
	l.add(l.place(path, problem, fix))
}

// warn reports what is likely not meant about the key at path.
func (l *loader) warn(path, problem, fix string) {
	l.warnings = append(l.warnings, Warning(l.place(path, problem, fix)))
}

// place finds where the key at path was set, or what holds it.
func (l *loader) place(path, problem, fix string) Fault {
	f := Fault{File: l.c.Path, Key: path, Problem: problem, Fix: fix}
	for p := path; p != ""; p = parent(p) {
		if o, ok := l.c.origins[p]; ok {
			f.File, f.Line, f.Column, f.Source = o.File, o.Line, o.Column, o.Source
			break
		}
	}
	return f
}

func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

func item(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// A carrier is what a secret is sent in: which characters it cannot carry, and
// what is said of a secret with one of them.
type carrier struct {
	cannot func(rune) bool
	holds  string
}

var (
	byHeader = carrier{func(r rune) bool { return r <= ' ' || r > '~' }, "a space or a character that no header can carry"}
	encoded  = carrier{unicode.IsControl, "a line break or another control character"} // by what sends it: a passphrase may have spaces
)

// secretText returns what the variable or the file of a secret for a header
// holds, for the keys env and file below path. ok is false when neither is set
// or something is wrong, which is reported.
func (l *loader) secretText(path, envKey, env, fileKey, file string) (text string, ok bool) {
	return l.secretBy(byHeader, path, envKey, env, fileKey, file)
}

// secretBy is secretText of a secret that is sent in something else.
func (l *loader) secretBy(by carrier, path, envKey, env, fileKey, file string) (text string, ok bool) {
	switch {
	case env != "" && file != "":
		l.fault(join(path, fileKey), "the secret has two sources, "+envKey+" and "+fileKey, "remove one of them")
	case env != "" && !nameRE.MatchString(env):
		l.fault(join(path, envKey), "this is not the name of an environment variable", "write the name of the variable that holds the secret, never the secret")
	case env != "":
		text, _ = l.src.Env(env)
		return text, l.usable(by, join(path, envKey), text, "the environment variable "+env)
	case file != "":
		data, err := l.src.ReadFile(file)
		if err != nil && l.src.StoreOnly {
			return "", false
		}
		if err != nil {
			l.fault(join(path, fileKey), "the file of the secret cannot be read: "+reason(err), "write the secret into it, readable by this user only")
			return "", false
		}
		text = strings.TrimRight(string(data), "\r\n")
		return text, l.usable(by, join(path, fileKey), text, "the file")
	}
	return "", false
}

// usable reports whether a secret can be sent in what carries it, and says so if
// not.
func (l *loader) usable(by carrier, path, text, holder string) bool {
	if text == "" && l.src.StoreOnly {
		return false
	}
	if text == "" {
		l.fault(path, holder+" is not set or holds nothing", "put the secret into it")
		return false
	}
	if strings.ContainsFunc(text, by.cannot) {
		l.fault(path, holder+" holds "+by.holds, "put only the secret into it, on one line")
		return false
	}
	return true
}

// installKey reads install_key_file (P19).
func (l *loader) installKey() {
	if l.c.InstallKeyFile != "" {
		l.c.InstallKey = l.keyFile("install_key_file", l.c.InstallKeyFile)
	}
}

// keyFile reads a key of 32 bytes from a file; none when something is wrong,
// which is reported.
func (l *loader) keyFile(path, file string) agentbus.Credential {
	data, err := l.src.ReadFile(file)
	if err != nil {
		l.fault(path, "the file cannot be read: "+reason(err), "write 32 random bytes into it, readable by this user only")
		return agentbus.Credential{}
	}
	key, ok := binaryKey(data)
	if !ok {
		l.fault(path, "the file holds neither 32 bytes nor 64 hex digits", "make it with: openssl rand -hex 32")
		return agentbus.Credential{}
	}
	return agentbus.NewCredential(key)
}

// sealingKey reads the key of sealed credentials (R18).
func (l *loader) sealingKey() {
	s := &l.c.Sealing
	switch {
	case s.KeyEnv != "" && s.KeyFile != "":
		l.fault("sealing.key_file", "the key has two sources, key_env and key_file", "remove one of them")
	case s.KeyFile != "":
		s.Key = l.keyFile("sealing.key_file", s.KeyFile)
	case s.KeyEnv != "" && !nameRE.MatchString(s.KeyEnv):
		l.fault("sealing.key_env", "this is not the name of an environment variable", "write the name of the variable that holds the key, never the key")
	case s.KeyEnv != "":
		text, _ := l.src.Env(s.KeyEnv)
		key, ok := hexKey(text)
		if !ok {
			l.fault("sealing.key_env", "the environment variable "+s.KeyEnv+" does not hold 64 hex digits", "make them with: openssl rand -hex 32")
			return
		}
		s.Key = agentbus.NewCredential(key)
	}
}
