// A shared object that is no plugin, for tests of the loader.
extern "C" int pagemill_is_not_a_plugin() { return 0; }
