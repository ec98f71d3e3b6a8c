/** The function that gives a model the instructions of a skill. */
export const loadSkillName = "load_skill";
