//! Chat templates: Jinja as transformers runs it, in a sandbox with a budget.

mod dumps;
mod filters;
mod methods;
mod percent;
mod source;
mod text_filters;

use crate::abi::{enter, failure, text, Bytes, Failure, RAISED};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, Serde, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use std::cell::{Cell, RefCell};
use std::ffi::CString;

/// About 0.1 s of loop steps. minijinja charges one unit per 64 bytes made,
/// so this also bounds the output to some 300 MB.
const FUEL: u64 = 5_000_000;
const LONGEST_SOURCE: usize = 1 << 20;
const LONGEST_OUTPUT: usize = 64 << 20;

thread_local! {
    /// The text of raise_exception, which must come out bare.
    static RAISED_MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
    /// The clock that strftime_now reads.
    static NOW: Cell<i64> = const { Cell::new(0) };
}

pub struct Template {
    environment: Environment<'static>,
}

fn raise_exception(args: Rest<Value>) -> Result<Value, Error> {
    let message = args.first().map(Value::to_string).unwrap_or_default();
    RAISED_MESSAGE.with(|slot| *slot.borrow_mut() = Some(message.clone()));
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// datetime.now().strftime(format) in local time.
fn strftime_now(format: &str) -> Result<Value, Error> {
    if format.is_empty() {
        return Ok(Value::from(""));
    }
    let Ok(format) = CString::new(format) else {
        return filters::invalid("strftime_now: the format has a NUL");
    };
    let time = NOW.with(Cell::get) as libc::time_t;
    let mut buffer = vec![0u8; 4096];
    // SAFETY: `parts` is filled before use, the buffer's true size is passed.
    let length = unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&time, &mut parts).is_null() {
            return filters::invalid("strftime_now: the time is out of range");
        }
        libc::strftime(
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            format.as_ptr(),
            &parts,
        )
    };
    buffer.truncate(length);
    Ok(Value::from(String::from_utf8_lossy(&buffer).into_owned()))
}

impl Template {
    pub fn compile(original: &str) -> Result<Template, Failure> {
        if original.len() > LONGEST_SOURCE {
            return failure(format!(
                "the template has {} bytes, the limit is {LONGEST_SOURCE}",
                original.len()
            ));
        }
        let prepared = source::prepare(original)?;
        let mut environment = Environment::new();
        environment.set_syntax(
            SyntaxConfig::builder()
                .trim_blocks(true)
                .lstrip_blocks(true)
                .build()?,
        );
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(100);
        environment.set_unknown_method_callback(methods::call);
        environment.set_formatter(|out, state, value| {
            if value.kind() == ValueKind::Number && !value.is_integer() {
                return Ok(out.write_str(&filters::python_str(value))?);
            }
            minijinja::escape_formatter(out, state, value)
        });
        filters::install(&mut environment);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_template_owned("chat", prepared)?;
        Ok(Template { environment })
    }

    pub fn render(&self, context: &str, now: i64) -> Result<String, Failure> {
        let context: serde_json::Value = serde_json::from_str(context)?;
        NOW.with(|slot| slot.set(now));
        RAISED_MESSAGE.with(|slot| slot.borrow_mut().take());
        let result = self
            .environment
            .get_template("chat")?
            .render(Value::from(Serde(&context)));
        match result {
            Ok(text) if text.len() > LONGEST_OUTPUT => failure(format!(
                "the template made {} bytes, the limit is {LONGEST_OUTPUT}",
                text.len()
            )),
            Ok(text) => Ok(text),
            Err(error) => Err(match RAISED_MESSAGE.with(|slot| slot.borrow_mut().take()) {
                Some(message) => Failure {
                    code: RAISED,
                    message,
                },
                None => describe(&error).into(),
            }),
        }
    }
}

/// The innermost cause and its line: what a template's author needs.
fn describe(error: &Error) -> String {
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    message
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_template_new(
    source: *const u8,
    len: usize,
    out: *mut *mut Template,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        Ok(Box::into_raw(Box::new(Template::compile(text(
            source, len,
        )?)?)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_template_free(template: *mut Template) {
    if !template.is_null() {
        drop(Box::from_raw(template));
    }
}

/// `context` is a JSON object with the template's variables.
#[no_mangle]
pub unsafe extern "C" fn mlxx_template_render(
    template: &Template,
    context: *const u8,
    len: usize,
    unix_time: i64,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        let rendered = template.render(text(context, len)?, unix_time)?;
        Ok(Bytes::from_vec(rendered.into_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::Template;
    use crate::abi::RAISED;

    fn render(source: &str, context: &str) -> String {
        let template = Template::compile(source).map_err(|f| f.message).unwrap();
        template.render(context, 0).map_err(|f| f.message).unwrap()
    }

    #[test]
    fn prints_as_jinja2_does() {
        for (source, text) in [
            (
                "{{ 1e16 }} {{ 1.0 }} {{ none }} {{ true }}",
                "1e+16 1.0 None True",
            ),
            (
                "{{ 'x' | int }} {{ '3.7' | int }} {{ 'x' | float }}",
                "0 3 0.0",
            ),
            ("{{ x | default('a', boolean=true) }}", "a"),
            (
                "{{ 'a b  c'.split() | length }}{{ 'a-b-c'.rsplit('-', 1)[0] }}",
                "3a-b",
            ),
            (
                "{{ 'abc'.center(6, '*') }}|{{ '-5'.zfill(4) }}",
                "*abc**|-005",
            ),
            ("{{ none is iterable }} {{ [] is iterable }}", "False True"),
            ("  {% if true %}\nA\n  {% endif %}\nB\n", "A\nB"),
            (
                "{{ {'b': 1, 'a': \"x<y & 'q' /\"} | tojson }}",
                "{\"b\": 1, \"a\": \"x<y & 'q' /\"}",
            ),
        ] {
            assert_eq!(render(source, "{}"), text, "{source}");
        }
    }

    #[test]
    fn raising_gives_the_bare_message() {
        let template = Template::compile("{{ raise_exception('no system role') }}");
        let failure = template
            .map_err(|f| f.message)
            .unwrap()
            .render("{}", 0)
            .err()
            .unwrap();
        assert_eq!(failure.code, RAISED);
        assert_eq!(failure.message, "no system role");
    }

    #[test]
    fn work_bombs_run_out_of_fuel() {
        for source in [
            "{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}x\
             {% endfor %}{% endfor %}{% endfor %}",
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "{{ range(1000000000) | list | length }}",
            "{{ 'x' * 1000000000 }}",
            "{{ 'x'.center(1000000000) }}",
            "{{ '%1000000000d' | format(1) }}",
        ] {
            let template = Template::compile(source).map_err(|f| f.message).unwrap();
            assert!(template.render("{}", 0).is_err(), "{source}");
        }
    }
}
