// The program that owns a precompiled header which other tests share.
int main() {
  return 0;
}
