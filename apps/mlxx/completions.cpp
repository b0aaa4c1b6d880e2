#include "apps/mlxx/completions.h"

#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "mlxx/base/error.h"

namespace mlxx::apps {

namespace {

struct Flag {
  std::vector<std::string> names;  // with their dashes
  std::string description;
  bool takes_value;
};

struct Verb {
  std::string path;  // "runtime install"; "" for the program itself
  std::string name;
  std::string description;
  std::vector<Flag> flags;
  std::vector<size_t> inner;  // verbs below it, as indices
};

std::string one_line(std::string text) {
  for (char& c : text) {
    c = c == '\n' ? ' ' : c;
  }
  return text;
}

// The tree as a list, parents first.
size_t collect(
    const CLI::App& app,
    const std::string& path,
    std::vector<Verb>& verbs) {
  size_t index = verbs.size();
  verbs.push_back(
      {path, app.get_name(), one_line(app.get_description()), {}, {}});
  for (const CLI::Option* option : app.get_options()) {
    if (!option->nonpositional()) {
      continue;
    }
    Flag flag;
    for (const std::string& name : option->get_snames()) {
      flag.names.push_back("-" + name);
    }
    for (const std::string& name : option->get_lnames()) {
      flag.names.push_back("--" + name);
    }
    flag.description = one_line(option->get_description());
    flag.takes_value = option->get_type_size() != 0;
    verbs[index].flags.push_back(std::move(flag));
  }
  for (const CLI::App* inner : app.get_subcommands({})) {
    std::string inner_path =
        path.empty() ? inner->get_name() : path + " " + inner->get_name();
    size_t child = collect(*inner, inner_path, verbs);
    verbs[index].inner.push_back(child);
  }
  return index;
}

// Inside single quotes of any of the three shells' POSIX way.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

// fish knows \' and \\ inside single quotes.
std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) {
    if (c == '\'' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out + "'";
}

std::string names_of(const std::vector<Verb>& verbs, const Verb& verb) {
  std::string names;
  for (size_t inner : verb.inner) {
    names += (names.empty() ? "" : " ") + verbs[inner].name;
  }
  return names;
}

// `with_value` picks the flags that take one, or all of them.
std::string flags_of(const Verb& verb, bool with_value_only) {
  std::string names;
  for (const Flag& flag : verb.flags) {
    if (with_value_only && !flag.takes_value) {
      continue;
    }
    for (const std::string& name : flag.names) {
      names += (names.empty() ? "" : " ") + name;
    }
  }
  return names;
}

// `text` with the one place `mark` in it replaced.
std::string replaced(
    const std::string& text,
    std::string_view mark,
    const std::string& value) {
  size_t at = text.find(mark);
  return fmt::format(
      "{}{}{}",
      std::string_view(text).substr(0, at),
      value,
      std::string_view(text).substr(at + mark.size()));
}

// What the verb in the shell's `variable` has below it, its flags, and those
// of them that take a value. The same in bash and zsh.
std::string word_tables(
    const std::vector<Verb>& verbs,
    const std::string& variable) {
  std::string verb_cases;
  std::string flag_cases;
  std::string value_cases;
  for (const Verb& verb : verbs) {
    std::string path = quoted(verb.path);
    verb_cases += fmt::format(
        "    {}) inner={} ;;\n",
        path,
        quoted(names_of(verbs, verb)));
    flag_cases += fmt::format(
        "    {}) flags={} ;;\n",
        path,
        quoted(flags_of(verb, false)));
    value_cases += fmt::format(
        "    {}) valued={} ;;\n",
        path,
        quoted(flags_of(verb, true)));
  }
  return fmt::format(
      "  case \"${0}\" in\n{1}  esac\n"
      "  case \"${0}\" in\n{2}  esac\n"
      "  case \"${0}\" in\n{3}  esac\n",
      variable,
      verb_cases,
      flag_cases,
      value_cases);
}

std::string bash_script(const std::vector<Verb>& verbs) {
  std::string script =
      R"sh(# bash completion of mlxx: eval "$(mlxx completions bash)"
_mlxx_tables() {
@tables@}
_mlxx() {
  local path='' inner='' flags='' valued='' word previous='' i
  local current="${COMP_WORDS[COMP_CWORD]}"
  COMPREPLY=()
  _mlxx_tables
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word="${COMP_WORDS[i]}"
    if [[ -n "$previous" && " $valued " == *" $previous "* ]]; then
      previous=''
      continue
    fi
    if [[ " $inner " == *" $word "* ]]; then
      path="${path:+$path }$word"
      _mlxx_tables
    fi
    previous="$word"
  done
  if [[ -n "$previous" && " $valued " == *" $previous "* ]]; then
    COMPREPLY=($(compgen -f -- "$current"))
  elif [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$current"))
  elif [[ -n "$inner" ]]; then
    COMPREPLY=($(compgen -W "$inner" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _mlxx mlxx
)sh";
  return replaced(script, "@tables@", word_tables(verbs, "path"));
}

// zsh reads "name:description", so a colon in a name is escaped.
std::string zsh_described(const std::string& name, const std::string& text) {
  std::string escaped;
  for (char c : name) {
    escaped += c == ':' ? std::string("\\:") : std::string(1, c);
  }
  return quoted(escaped + ":" + text);
}

std::string zsh_script(const std::vector<Verb>& verbs) {
  std::string described;
  for (const Verb& verb : verbs) {
    std::string flags;
    for (const Flag& flag : verb.flags) {
      for (const std::string& name : flag.names) {
        flags += ' ';
        flags += zsh_described(name, flag.description);
      }
    }
    std::string inner;
    for (size_t index : verb.inner) {
      inner += ' ';
      inner += zsh_described(verbs[index].name, verbs[index].description);
    }
    described += fmt::format(
        "    {}) described_flags=({} ) described_verbs=({} ) ;;\n",
        quoted(verb.path),
        flags,
        inner);
  }
  // `path` is the search path in zsh.
  std::string script = R"sh(#compdef mlxx
# zsh completion of mlxx: eval "$(mlxx completions zsh)"
_mlxx_tables() {
@tables@  case "$path_words" in
@described@  esac
}
_mlxx() {
  local path_words='' inner='' flags='' valued='' word previous='' i
  local -a described_flags described_verbs
  _mlxx_tables
  for ((i = 2; i < CURRENT; ++i)); do
    word="${words[i]}"
    if [[ -n "$previous" && " $valued " == *" $previous "* ]]; then
      previous=''
      continue
    fi
    if [[ " $inner " == *" $word "* ]]; then
      path_words="${path_words:+$path_words }$word"
      _mlxx_tables
    fi
    previous="$word"
  done
  if [[ -n "$previous" && " $valued " == *" $previous "* ]]; then
    _files
  elif [[ "${words[CURRENT]}" == -* ]]; then
    _describe -o option described_flags
  elif [[ -n "$inner" ]]; then
    _describe verb described_verbs
  else
    _files
  fi
}
compdef _mlxx mlxx
)sh";
  script = replaced(script, "@tables@", word_tables(verbs, "path_words"));
  return replaced(script, "@described@", described);
}

std::string fish_script(const std::vector<Verb>& verbs) {
  std::string out =
      "# fish completion of mlxx: mlxx completions fish | source\n";
  for (const Verb& verb : verbs) {
    std::string condition = "__fish_use_subcommand";
    if (!verb.path.empty()) {
      condition.clear();
      for (const std::string& word : CLI::detail::split(verb.path, ' ')) {
        condition += (condition.empty() ? "" : "; and ") +
            ("__fish_seen_subcommand_from " + word);
      }
    }
    for (size_t index : verb.inner) {
      std::string not_yet = condition;
      if (!verb.path.empty()) {
        not_yet +=
            "; and not __fish_seen_subcommand_from " + names_of(verbs, verb);
      }
      out += fmt::format(
          "complete -c mlxx -f -n {} -a {} -d {}\n",
          fish_quoted(not_yet),
          verbs[index].name,
          fish_quoted(verbs[index].description));
    }
    for (const Flag& flag : verb.flags) {
      std::string names;
      for (const std::string& name : flag.names) {
        names += name.starts_with("--") ? " -l " + name.substr(2)
                                        : " -s " + name.substr(1);
      }
      out += fmt::format(
          "complete -c mlxx -n {}{}{} -d {}\n",
          fish_quoted(condition),
          names,
          flag.takes_value ? " -r" : "",
          fish_quoted(flag.description));
    }
  }
  return out;
}

}  // namespace

std::string completion_script(const CLI::App& app, std::string_view shell) {
  std::vector<Verb> verbs;
  collect(app, "", verbs);
  if (shell == "bash") {
    return bash_script(verbs);
  }
  if (shell == "zsh") {
    return zsh_script(verbs);
  }
  if (shell == "fish") {
    return fish_script(verbs);
  }
  fail(
      ErrorKind::invalid_request,
      "completions",
      "there are none for \"{}\", only for {}",
      shell,
      kShells);
}

}  // namespace mlxx::apps
