// The task of ../weather.py: two tools in turn, then an answer.
"use strict";

const { z } = require("zod");

const MODEL = "test-model";
const FRANCE = "What is the capital of France? Answer in one word.";
const QUESTION = "Is it warm in Paris? Find the city's station, then its temperature.";

const Report = z.object({
  city: z.enum(["Paris", "Rome"]),
  temperature: z.int().min(-50).max(50),
  warm: z.boolean(),
});

const STATIONS = ["station-paris", "station-rome"];
const TOOLS = {
  find_station: {
    description: "The weather station of a city.",
    schema: z.object({ city: z.enum(["Paris", "Rome"]) }),
    run: ({ city }) => `station-${city.toLowerCase()}`,
  },
  read_temperature: {
    description: "The temperature at a station, in degrees Celsius.",
    schema: z.object({ station: z.enum(STATIONS) }),
    run: ({ station }) => (station === STATIONS[0] ? "21" : "27"),
  },
};

module.exports = { FRANCE, MODEL, QUESTION, Report, TOOLS };
