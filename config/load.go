package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// maxFile bounds a settings file, in bytes.
const maxFile = 1 << 20

// Load reads the file at path over the defaults. Errors name the file, the line, the column and the key; all unknown keys are
// reported at once. It does not call Validate: environment variables and flags may still follow.
func Load(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("settings file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return Config{}, fmt.Errorf("settings file: %w", err)
	}
	return parse(path, data, Default())
}

// parse reads the text of the file name over base.
func parse(name string, data []byte, base Config) (Config, error) {
	if len(data) > maxFile {
		return Config{}, fmt.Errorf("%s: longer than %d bytes, which is no settings file", name, maxFile)
	}
	if err := checkKeys(name, data); err != nil {
		return Config{}, err
	}
	if err := toml.Unmarshal(data, &base); err != nil {
		if de, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, column := de.Position()
			return Config{}, fmt.Errorf("%s:%d:%d: %s", name, line, column, withKey(de))
		}
		return Config{}, fmt.Errorf("%s: %w", name, err)
	}
	return base, nil
}

func withKey(de *toml.DecodeError) string {
	text := strings.TrimPrefix(de.Error(), "toml: ")
	if key := de.Key(); len(key) > 0 {
		return dotted(key) + ": " + text
	}
	return text
}
